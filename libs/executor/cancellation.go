package executor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

// sweepEvery is how often the runs of calls that take long are looked up, in case their cancellation was not heard.
const sweepEvery = 2 * time.Second

// heardWithin is how long the server may take to say that it has the subscription.
const heardWithin = time.Second

// HearCancellations stops what this process does for runs that are cancelled, until ctx ends. Every instance has to hear
// each cancellation, which a durable gives to one: so it is heard as it is published, which may fail, and read from
// the stream for what is in flight for long, which may not.
func (g *Gate) HearCancellations(ctx context.Context) error {
	sub, err := g.conn.NC.Subscribe(bus.RunCancelledSubject, func(m *nats.Msg) {
		if at, err := schemas.ParseSubject(m.Subject); err == nil {
			g.flights.cancelRun(thing{Tenant: at.Tenant, ID: at.Key})
		}
	})
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the bus does not say which runs are cancelled")
	}
	defer func() { _ = sub.Unsubscribe() }() // a connection that is gone has no subscription
	// That a client gave a call up saves work, no more: what is not heard runs on to its end. What it answers it says again if it
	// sees the question open still.
	given, err := g.conn.NC.Subscribe(bus.LiveSubject("*.*.down"), func(m *nats.Msg) {
		t := strings.Split(m.Subject, ".")
		switch {
		case len(t) != 6:
		case len(m.Data) == 0:
			g.flights.giveUp(id.Tenant(t[3]), id.Call(t[4]))
		default:
			g.questions.take(id.Tenant(t[3]), id.Call(t[4]), m.Data)
		}
	})
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the bus does not say which calls are given up")
	}
	defer func() { _ = given.Unsubscribe() }() // a connection that is gone has no subscription
	g.hearing.begin(ctx, g.conn, sub)
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if g.hearing.lost(g.conn) {
			g.hearing.begin(ctx, g.conn, sub)
		}
		for _, r := range g.flights.sweep() {
			// An error is one of a bus that is away; the next sweep looks again.
			if over, err := standing.RunCancelled(ctx, g.log, r.Tenant, id.Run(r.ID)); err == nil && over {
				g.flights.cancelRun(r)
			}
		}
	}
}

// hearing is since when a process hears every cancellation.
type hearing struct {
	mu         sync.Mutex
	since      time.Time // zero: not yet
	reconnects uint64    // of the bus, then
	sub        *nats.Subscription
	dropped    int // of its messages, then
}

// skew is how far the clocks of two machines may be apart.
const skew = time.Second

// begin hears from now on, if the server says in time that it has the subscription. What is counted is counted before it is asked,
// so that a loss meanwhile is one.
func (h *hearing) begin(ctx context.Context, conn *bus.Conn, sub *nats.Subscription) {
	reconnects := conn.NC.Stats().Reconnects
	dropped, err := sub.Dropped()
	if err != nil {
		return // the subscription is gone: the process is ending
	}
	ctx, cancel := context.WithTimeout(ctx, heardWithin) // without a time there is no flush
	defer cancel()
	if conn.NC.FlushWithContext(ctx) != nil || ctx.Err() != nil {
		return // the next sweep tries again; until then every run is looked up
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reconnects, h.sub, h.dropped, h.since = reconnects, sub, dropped, time.Now()
}

// lost says that the bus was or is away since, or brought more than was taken.
func (h *hearing) lost(conn *bus.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() || h.reconnects != conn.NC.Stats().Reconnects || !conn.NC.IsConnected() {
		return true
	}
	dropped, err := h.sub.Dropped()
	return err != nil || dropped != h.dropped
}

// had says that cancellations were heard since before a time, so that one of after it is known.
func (h *hearing) had(conn *bus.Conn, at time.Time) bool {
	if h.lost(conn) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since.Add(skew).Before(at)
}

// sweep gives the runs of the calls that were in flight at the last sweep too.
func (f *flights) sweep() []thing {
	f.mu.Lock()
	defer f.mu.Unlock()
	runs := map[thing]struct{}{}
	for c, x := range f.flying {
		if x.swept {
			runs[x.run] = struct{}{}
		}
		x.swept = true
		f.flying[c] = x
	}
	return slices.Collect(maps.Keys(runs))
}
