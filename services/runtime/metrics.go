package runtime

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// metrics are of scripts and of the pool that they run in.
type metrics struct {
	seconds *prometheus.HistogramVec // by result
	wait    prometheus.Histogram
	stopped *prometheus.CounterVec // by reason
	begun   *prometheus.CounterVec // by worker
}

func newMetrics(to prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "execwarden_script_seconds", Help: "Time of scripts, by result.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, []string{"result"}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "execwarden_script_wait_seconds", Help: "Time that scripts waited for a place and a worker.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}),
		stopped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "execwarden_script_stopped_total", Help: "Scripts that did not come to their own end, by what stopped them.",
		}, []string{"reason"}),
		begun: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "execwarden_script_workers_total", Help: "Scripts that had a worker: new, or kept from an earlier script of the run.",
		}, []string{"worker"}),
	}
	for _, c := range []prometheus.Collector{m.seconds, m.wait, m.stopped, m.begun} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// watch adds what a pool can be asked at any time.
func (m *metrics) watch(to prometheus.Registerer, p *sandbox.Pool) error {
	for state, of := range map[string]func(sandbox.State) int{
		"running": func(s sandbox.State) int { return s.Running - s.Hungry },
		"waiting": func(s sandbox.State) int { return s.Waiting }, // for a place
		"hungry":  func(s sandbox.State) int { return s.Hungry },  // for a worker
		"parked":  func(s sandbox.State) int { return s.Parked },  // no script, but the worker that a run's next one will have
	} {
		err := to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "execwarden_scripts", Help: "Scripts in the pool: running, waiting for a place, hungry for a worker; and workers parked for the next script of their run.", ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(of(p.State())) }))
		if err != nil {
			return err
		}
	}
	return to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "execwarden_script_isolation", Help: "1, with the tier at which script workers are isolated.", ConstLabels: prometheus.Labels{"tier": string(p.Tier())},
	}, func() float64 { return 1 }))
}

// stops are the codes of scripts that were ended by a limit, by the kernel or as a fault, and not by what they say.
var stops = map[string]bool{sandbox.CodeTimeout: true, sandbox.CodeCPU: true, sandbox.CodeMemory: true, sandbox.CodeStack: true,
	sandbox.CodeDeadlock: true, sandbox.CodeFault: true, sandbox.CodeDivergence: true}

// results are the codes that a script's time in a worker is counted by.
var results = func() map[string]bool {
	all := map[string]bool{"ok": true}
	for _, c := range []string{sandbox.CodeSyntax, sandbox.CodeUnsupported, sandbox.CodeRegexp, sandbox.CodeException, sandbox.CodeTimeout, sandbox.CodeCPU,
		sandbox.CodeMemory, sandbox.CodeStack, sandbox.CodeDeadlock, sandbox.CodeOutputTooLarge, sandbox.CodeToolUnknown, sandbox.CodeTooManyCalls,
		sandbox.CodeArgsTooLarge, sandbox.CodeResultTooLarge, sandbox.CodeFetchDisabled, sandbox.CodeFetchBlocked, sandbox.CodeFetchTooLarge,
		sandbox.CodeArtifactTooLarge, sandbox.CodeDivergence, sandbox.CodeFault} {
		all[c] = true
	}
	for _, c := range problem.Codes() {
		all[string(c)] = true
	}
	return all
}()

// ended counts how a script's time in a worker ended. code is the script's own, "ok" for a value.
func (m *metrics) ended(code string, stats sandbox.Stats) {
	if !results[code] {
		code = "other" // a worker that is not the engine any more could say a new one each time
	}
	m.seconds.WithLabelValues(code).Observe(stats.Wall.Seconds())
	m.wait.Observe(stats.Wait.Seconds())
	if stats.Wall > 0 { // and not a script that never had one
		m.begun.WithLabelValues(map[bool]string{true: "kept", false: "new"}[stats.Warm]).Inc()
	}
	if stops[code] {
		m.stopped.WithLabelValues(code).Inc()
	}
}

// leftOff counts a script that is run again later, had no worker, or was cancelled.
func (m *metrics) leftOff(err error, cancelled bool) {
	switch {
	case cancelled:
		m.stopped.WithLabelValues("cancelled").Inc()
	case problem.CodeOf(err) == problem.Busy: // a held call, or a full pool
		m.stopped.WithLabelValues("busy").Inc()
	default:
		m.stopped.WithLabelValues("cut_off").Inc()
	}
}
