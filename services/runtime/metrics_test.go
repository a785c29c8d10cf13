package runtime

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// A worker that somebody else holds can end each script with a new code: they are counted as one.
func TestCodesOfWorkersAreBounded(t *testing.T) {
	to := prometheus.NewRegistry()
	m, err := newMetrics(to)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		m.ended(fmt.Sprint("made_up_", i), sandbox.Stats{})
	}
	m.ended("ok", sandbox.Stats{})
	m.ended(sandbox.CodeFault, sandbox.Stats{})
	m.ended("denied", sandbox.Stats{}) // an uncaught ToolError
	families, err := to.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "execwarden_script_seconds" && len(f.Metric) != 4 {
			t.Errorf("%d results", len(f.Metric))
		}
	}
}
