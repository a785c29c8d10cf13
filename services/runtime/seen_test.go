package runtime_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/script"
)

// How workers are isolated is in each script's record, in the process's readiness and in a metric, and all say the same.
func TestIsolationIsSeen(t *testing.T) {
	h := start(t, false)
	h.admit("call_js", source(`1`))
	h.outcome("call_js")
	started, _ := servicekit.Await[script.Started](h.Kit, 1, nil)
	if !slices.Contains([]string{"jailed", "core", "weak"}, started.Tier) || h.deps.Health.Facts()["script isolation"] != started.Tier {
		t.Errorf("the record says %q, readiness %v", started.Tier, h.deps.Health.Facts())
	}
	if got := h.measured(); !slices.Contains(got, `execwarden_script_isolation{tier="`+started.Tier+`"} 1`) {
		t.Error(got)
	}
}

// What an operator is told to watch is there, and counts.
func TestMetrics(t *testing.T) {
	h := start(t, false)
	n := 0
	buskit.Eventually(t, "a script has the worker of the one before", func() bool { // which takes a moment to be ready again
		n++
		c := id.Call(fmt.Sprint("call_", n))
		h.admit(c, source(`return 1`))
		h.outcome(c)
		return slices.Contains(h.measured(), `execwarden_script_workers_total{worker="kept"} 1`)
	})
	h.admit("call_stuck", source(`await new Promise(() => {})`))
	h.outcome("call_stuck")
	got := h.measured()
	for _, want := range []string{fmt.Sprintf(`execwarden_script_seconds{result="ok"} %d`, n), `execwarden_script_seconds{result="deadlock"} 1`, fmt.Sprintf(`execwarden_script_wait_seconds %d`, n+1),
		`execwarden_script_stopped_total{reason="deadlock"} 1`, `execwarden_scripts{state="running"} 0`, `execwarden_scripts{state="waiting"} 0`, `execwarden_scripts{state="hungry"} 0`} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// measured gives the service's own metrics, histograms by their counts.
func (h *house) measured() (out []string) {
	h.t.Helper()
	families, err := h.deps.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += fmt.Sprintf("{%s=%q}", l.GetName(), l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			out = append(out, fmt.Sprintf("%s %g", name, value))
		}
	}
	return out
}
