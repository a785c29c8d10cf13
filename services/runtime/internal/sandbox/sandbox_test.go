package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/workerkit"
)

// newPool gives a pool of real workers that ends with the test.
func newPool(t testing.TB, change ...func(*Config)) *Pool {
	t.Helper()
	config := Config{Ready: 2, Patience: time.Minute} // a machine may be very busy
	for _, f := range change {
		f(&config)
	}
	if config.WorkerPath == "" {
		config.WorkerPath = workerkit.BuildWorker(t)
	}
	p, err := New(t.Context(), config, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fakeHost answers with functions, and keeps what it heard.
type fakeHost struct {
	tool  func(context.Context, Call) (json.RawMessage, error)
	fetch func(context.Context, Request) (Response, error)
	kept  Kept
	keep  func(context.Context, Artifact) (Kept, error)
	said  func(seq int)
	no    func(seq int) error
	begin func() error

	mu      sync.Mutex
	calls   []Call
	fetches []Request
	lines   []string

	started  int
	answered []int
	refused  []int
}

func (h *fakeHost) CallTool(ctx context.Context, c Call) (json.RawMessage, error) {
	h.mu.Lock()
	h.calls = append(h.calls, c)
	h.mu.Unlock()
	if h.tool == nil {
		return c.Args, nil
	}
	return h.tool(ctx, c)
}

func (h *fakeHost) Fetch(ctx context.Context, r Request) (Response, error) {
	h.mu.Lock()
	h.fetches = append(h.fetches, r)
	h.mu.Unlock()
	if h.fetch == nil {
		return Response{}, problem.New(problem.Denied, "no fetch in this test")
	}
	return h.fetch(ctx, r)
}

func (h *fakeHost) Started(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started++
	if h.begin != nil {
		return h.begin()
	}
	return nil
}

func (h *fakeHost) begun() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.started
}

func (h *fakeHost) Refused(seq int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, seq)
	if h.no != nil {
		return h.no(seq)
	}
	return nil
}

func (h *fakeHost) Answered(seq int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answered = append(h.answered, seq)
	if h.said != nil {
		h.said(seq)
	}
}

func (h *fakeHost) Log(level, line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, level+": "+line)
}

func script(source string) Script {
	return Script{Source: source, Seed: 7, Now: time.UnixMilli(1_700_000_000_000), Tools: []string{"a.b", "gh.list", "lone"}, Fetch: true}
}

func bigAnswer(context.Context, Call) (json.RawMessage, error) {
	return json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`), nil
}

// codeOf is the code of a script's own failure, or of a problem.
func codeOf(err error) string {
	var s *ScriptError
	if errors.As(err, &s) {
		return s.Code
	}
	return string(problem.CodeOf(err))
}

// BenchmarkRun is one script with one tool call on a worker that is ready: the p50 is what counts. The pause lets the
// pool make the next worker, which is not on the path.
func BenchmarkRun(b *testing.B) {
	p := newPool(b, func(c *Config) { c.Ready = 8 })
	host := &fakeHost{}
	var walls []time.Duration
	for b.Loop() {
		time.Sleep(60 * time.Millisecond)
		got, err := p.Run(b.Context(), "t1", script(`return await tools.a.b({x: 1})`), host)
		if err != nil {
			b.Fatal(err)
		}
		walls = append(walls, got.Stats.Wall+got.Stats.Wait)
	}
	slices.Sort(walls)
	b.ReportMetric(float64(walls[len(walls)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(walls[0].Microseconds()), "min-µs")
}

// BenchmarkThroughput is scripts per second when more come than workers can be made.
func BenchmarkThroughput(b *testing.B) {
	p := newPool(b, func(c *Config) { c.Patience = time.Minute })
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := p.Run(b.Context(), "t1", script(`return await tools.a.b({x: 1})`), &fakeHost{}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "scripts/s")
}

// BenchmarkSpawn is what making a worker costs.
func BenchmarkSpawn(b *testing.B) {
	p := newPool(b, func(c *Config) { c.Ready = 1 })
	for b.Loop() {
		w, err := p.spawn(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		p.discard(w)
	}
}
