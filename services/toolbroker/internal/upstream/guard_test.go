package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a provider that answers as it is told.
type fake struct {
	answer func(context.Context) error
	asked  atomic.Int64
}

func (f *fake) Call(ctx context.Context, _ upstream.Call) (upstream.Result, error) {
	f.asked.Add(1)
	return upstream.Result{}, f.answer(ctx)
}
func (f *fake) Tools(ctx context.Context) ([]connection.Tool, error) {
	f.asked.Add(1)
	return nil, f.answer(ctx)
}
func (f *fake) Probe(ctx context.Context, _ upstream.Call) (upstream.Result, bool, error) {
	f.asked.Add(1)
	return upstream.Result{}, true, f.answer(ctx)
}
func (*fake) Close() error { return nil }

type guarded struct {
	*upstream.Guard
	fake  *fake
	gauge prometheus.Gauge
	logs  *bytes.Buffer
}

func guard(inFlight int) *guarded {
	g := &guarded{fake: &fake{answer: func(context.Context) error { return nil }}, gauge: prometheus.NewGauge(prometheus.GaugeOpts{Name: "state"}), logs: &bytes.Buffer{}}
	g.Guard = upstream.NewGuard(g.fake, "tickets", upstream.Limits{InFlight: inFlight, Wait: 2 * time.Second, Failures: 5, Rest: 15 * time.Second}, g.gauge, slog.New(slog.NewTextHandler(g.logs, nil)))
	return g
}

func (g *guarded) call(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := g.Call(ctx, upstream.Call{})
	return err
}

// What never came counts, however it did not come; what was answered does not.
func TestBreakerCountsWhatNeverCame(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		open bool
	}{
		"refused":               {problem.Wrap(&net.OpError{Op: "dial", Err: errors.New("connection refused")}, problem.Upstream, "no answer"), true},
		"broken off":            {upstream.Ambiguously(problem.Wrap(io.EOF, problem.Upstream, "no answer")), true},
		"by the way out":        {problem.Wrap(problem.New(problem.Unavailable, "x does not answer"), problem.Upstream, "no answer"), true},
		"too late":              {problem.New(problem.Timeout, "the server did not answer in time"), true},
		"a tool's own error":    {nil, false},
		"a refusal":             {problem.New(problem.Upstream, "the MCP server refused the call"), false},
		"a login that is gone":  {upstream.Harmlessly(problem.New(problem.Unauthenticated, "needs a login")), false},
		"a token that is late":  {upstream.Harmlessly(problem.New(problem.Unavailable, "the token endpoint does not answer")), false},
		"not allowed to dial":   {problem.New(problem.Denied, "fetch blocked"), false},
		"too many of its calls": {problem.New(problem.Busy, "rate limit"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := guard(4)
				g.fake.answer = func(context.Context) error { return c.err }
				for range 20 {
					_ = g.call(t.Context())
				}
				asked := int64(20)
				if c.open {
					asked = 5
				}
				if n := g.fake.asked.Load(); n != asked {
					t.Errorf("asked %d times, want %d", n, asked)
				}
				if state := testutil.ToFloat64(g.gauge); (state == 2) != c.open {
					t.Errorf("the gauge is %v", state)
				}
			})
		})
	}
}

func TestBreakerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(4)
		if err := g.call(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.fake.answer = func(ctx context.Context) error {
			<-ctx.Done()
			return problem.Wrap(ctx.Err(), problem.Upstream, "no answer")
		}
		for range 5 {
			if err := g.call(t.Context()); problem.CodeOf(err) != problem.Upstream {
				t.Errorf("%v", err)
			}
		}
		asked := g.fake.asked.Load()
		began := time.Now()
		err := g.call(t.Context())
		if problem.CodeOf(err) != problem.Unavailable || upstream.Ambiguous(err) || !strings.Contains(err.Error(), "connection tickets has not answered since 00:00:00 UTC, and is tried again in 15s; nothing was sent") || time.Since(began) != 0 {
			t.Errorf("%v", err)
		}
		if _, err := g.Tools(t.Context()); problem.CodeOf(err) != problem.Unavailable {
			t.Errorf("listing: %v", err)
		}
		if _, _, err := g.Probe(t.Context(), upstream.Call{}); problem.CodeOf(err) != problem.Unavailable {
			t.Errorf("probing: %v", err)
		}
		if g.fake.asked.Load() != asked {
			t.Error("it is asked while the breaker is open")
		}
		time.Sleep(16 * time.Second)
		var trying sync.WaitGroup
		for range 4 {
			trying.Go(func() { _ = g.call(t.Context()) })
		}
		trying.Wait()
		if n := g.fake.asked.Load() - asked; n != 1 {
			t.Errorf("%d tried at once", n)
		}
		time.Sleep(16 * time.Second)
		// One that somebody gives up on says nothing: the next tries.
		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		_ = g.call(left)
		g.fake.answer = func(context.Context) error { return nil }
		if err := g.call(t.Context()); err != nil {
			t.Errorf("it is back: %v", err)
		}
		if state := testutil.ToFloat64(g.gauge); state != 0 {
			t.Errorf("the gauge is %v", state)
		}
		for _, want := range []string{"from=closed to=open", "from=open to=half-open", "from=half-open to=closed", "connection=tickets"} {
			if !strings.Contains(g.logs.String(), want) {
				t.Errorf("the log has no %q:\n%s", want, g.logs)
			}
		}
	})
}

// Calls beyond the limit wait a moment for a place, and are told that they got none.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(2)
		release := make(chan struct{})
		g.fake.answer = func(ctx context.Context) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var calls sync.WaitGroup
		errs := make(chan error, 5)
		for range 5 {
			calls.Go(func() { errs <- g.call(t.Context()) })
		}
		synctest.Wait()
		if n := g.fake.asked.Load(); n != 2 {
			t.Errorf("%d in flight", n)
		}
		if _, err := g.Tools(contextThatEnds(t)); problem.CodeOf(err) == problem.Busy {
			t.Error("listing waits for a call's place")
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := g.Call(short, upstream.Call{}); problem.CodeOf(err) != problem.Busy || time.Since(began) != 100*time.Millisecond {
			t.Errorf("past its deadline: %v after %s", err, time.Since(began))
		}
		time.Sleep(3 * time.Second)
		for range 3 {
			if err := <-errs; problem.CodeOf(err) != problem.Busy || upstream.Ambiguous(err) || !strings.Contains(err.Error(), "2 calls in flight") {
				t.Errorf("%v", err)
			}
		}
		calls.Go(func() { errs <- g.call(t.Context()) }) // waits, and gets a place
		synctest.Wait()
		close(release)
		calls.Wait()
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

func contextThatEnds(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
