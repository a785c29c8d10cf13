package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// Limits is how much of a broker one connection may take.
type Limits struct {
	InFlight int           // calls at once; more wait up to Wait for a place, and are busy then
	Wait     time.Duration // within the call's own deadline
	Failures int           // in a row, after which nothing is sent for a while
	Rest     time.Duration // that while; then one call, or one listing, tries
}

// Guard stands between calls and one provider: a server that hangs takes a bounded number of calls with it, and one
// that is dead is not asked again and again. It counts what never came: what the network refused, broke or kept
// waiting. An answer is an answer, whatever it says.
type Guard struct {
	provider Provider
	name     string
	limits   Limits
	log      *slog.Logger
	state    prometheus.Gauge // 0: closed, calls go through; 1: half open, one tries; 2: open
	slots    chan struct{}
	breaker  *gobreaker.CircuitBreaker[any]
	now      func() time.Time

	mu       sync.Mutex
	answered time.Time // when the provider answered last, zero: never
	opened   time.Time // when the breaker did
}

// NewGuard puts a guard before a provider. state tells what its breaker does.
func NewGuard(p Provider, name string, limits Limits, state prometheus.Gauge, log *slog.Logger) *Guard {
	g := &Guard{provider: p, name: name, limits: limits, log: log, state: state, slots: make(chan struct{}, limits.InFlight), now: time.Now}
	g.breaker = gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Name: name, MaxRequests: 1, Timeout: limits.Rest,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= limits.Failures },
		IsSuccessful: func(err error) bool { return !silent(err) },
		IsExcluded:   excluded, OnStateChange: g.changed,
	})
	state.Set(0)
	return g
}

func (g *Guard) changed(_ string, from, to gobreaker.State) {
	g.state.Set(map[gobreaker.State]float64{gobreaker.StateClosed: 0, gobreaker.StateHalfOpen: 1, gobreaker.StateOpen: 2}[to])
	level := slog.LevelInfo
	if to == gobreaker.StateOpen {
		level = slog.LevelWarn
		g.mu.Lock()
		g.opened = g.now()
		g.mu.Unlock()
	}
	g.log.Log(context.Background(), level, "the breaker of a connection changed", "connection", g.name, "from", from.String(), "to", to.String())
}

// Tools implements Provider.
func (g *Guard) Tools(ctx context.Context) ([]connection.Tool, error) {
	return through(g, ctx, g.provider.Tools)
}

// Call implements Provider. Problems of its own: busy, and unavailable while the breaker is open; neither was sent.
func (g *Guard) Call(ctx context.Context, c Call) (Result, error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	return through(g, ctx, func(ctx context.Context) (Result, error) { return g.provider.Call(ctx, c) })
}

// Probe implements Provider.
func (g *Guard) Probe(ctx context.Context, c Call) (r Result, found bool, err error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return Result{}, false, err
	}
	defer leave()
	r, err = through(g, ctx, func(ctx context.Context) (r Result, err error) {
		r, found, err = g.provider.Probe(ctx, c)
		return r, err
	})
	return r, found, err
}

// List implements Lister for a provider that does.
func (g *Guard) List(ctx context.Context, method string, c *Client) (json.RawMessage, error) {
	l, ok := g.provider.(Lister)
	if !ok {
		return nil, problem.New(problem.NotFound, "connection %s is no MCP server", g.name)
	}
	leave, err := g.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return through(g, ctx, func(ctx context.Context) (json.RawMessage, error) { return l.List(ctx, method, c) })
}

// Renounce implements Renouncer for a provider that does.
func (g *Guard) Renounce() {
	if r, ok := g.provider.(Renouncer); ok {
		r.Renounce()
	}
}

// Close implements Provider.
func (g *Guard) Close() error { return g.provider.Close() }

// enter takes a place. A burst waits a moment rather than fail; a queue that is longer would only hide that the
// provider is too slow for what is asked of it.
func (g *Guard) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.slots <- struct{}{}:
		return func() { <-g.slots }, nil
	default:
	}
	timer := time.NewTimer(g.limits.Wait)
	defer timer.Stop()
	select {
	case g.slots <- struct{}{}:
		return func() { <-g.slots }, nil
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil, problem.New(problem.Busy, "connection %s has %d calls in flight at this broker, as many as it may, and none ended within %s; try again", g.name, g.limits.InFlight, g.limits.Wait)
}

// waited marks an error of work whose time was over, which the error itself may not say.
type waited struct{ error }

// gaveUp marks an error of work that somebody gave up on, or that was not let out: it says nothing of the provider.
type gaveUp struct{ error }

func through[T any](g *Guard, ctx context.Context, work func(context.Context) (T, error)) (out T, err error) {
	ran := false
	_, refused := g.breaker.Execute(func() (any, error) {
		ran = true
		out, err = work(ctx)
		var spared harmless
		switch {
		case err != nil && (errors.Is(ctx.Err(), context.Canceled) || errors.As(err, &spared)):
			return nil, gaveUp{err}
		case err != nil && ctx.Err() != nil:
			return nil, waited{err}
		case !silent(err):
			g.mu.Lock()
			g.answered = g.now()
			g.mu.Unlock()
		}
		return nil, err
	})
	if refused != nil && !ran {
		return out, g.resting()
	}
	return out, err
}

// resting is the problem of what was not sent.
func (g *Guard) resting() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	since := "has not answered yet"
	if !g.answered.IsZero() {
		since = "has not answered since " + g.answered.UTC().Format(time.TimeOnly) + " UTC"
	}
	next := "is being tried now"
	if rest := g.opened.Add(g.limits.Rest).Sub(g.now()); rest > 0 {
		next = "is tried again in " + max(rest.Round(time.Second), time.Second).String()
	}
	return problem.New(problem.Unavailable, "connection %s %s, and %s; nothing was sent", g.name, since, next)
}

// silent says whether an error means that the provider did not answer.
func silent(err error) bool {
	var w waited
	var n net.Error
	switch {
	case errors.As(err, &w), errors.As(err, &n), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	for ; err != nil; err = errors.Unwrap(err) {
		var p *problem.Error
		if !errors.As(err, &p) {
			return false
		}
		if p.Code == problem.Unavailable || p.Code == problem.Timeout {
			return true
		}
		err = p
	}
	return false
}

func excluded(err error) bool {
	var g gaveUp
	return errors.As(err, &g)
}
