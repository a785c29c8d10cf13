package executor

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// A process whose context has no end hears cancellations all the same, so that not every run is looked up; and does not count
// as hearing them when the bus was away, or brought more than it took, until the server has its subscription again.
func TestHearingBeginsAndIsLost(t *testing.T) {
	t.Parallel()
	k := servicekit.Start(t)
	d := k.Deps(schemas.Toolbroker)
	g := New("upstream", d.Conn, d.Log, d.Root)
	ctx, stop := context.WithCancel(context.Background()) // as a service is run
	ended := make(chan error, 1)
	go func() { ended <- g.HearCancellations(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	buskit.Eventually(t, "it hears", func() bool { return !g.hearing.lost(g.conn) })
	now := time.Now()
	if g.hearing.had(g.conn, now.Add(-time.Minute)) || !g.hearing.had(g.conn, now.Add(time.Minute)) {
		t.Error("what was before is taken for heard, or what comes after not")
	}
	k.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Run: "run_1", Event: run.Created{Run: "run_1"}})
	k.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Run: "run_1", Event: run.Cancelled{Run: "run_1"}})
	buskit.Eventually(t, "it heard", func() bool {
		g.flights.mu.Lock()
		defer g.flights.mu.Unlock()
		_, over := g.flights.cancelled[thing{Tenant: servicekit.Tenant, ID: string(id.Run("run_1"))}]
		return over
	})
	before := g.conn.NC.Stats().Reconnects
	if err := g.conn.NC.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the bus was away", func() bool { return g.conn.NC.Stats().Reconnects > before })
	buskit.Eventually(t, "it hears again", func() bool { return !g.hearing.lost(g.conn) })
}

// A subscription that lost a message has not heard every cancellation; and without a server that answers, nothing begins.
func TestHearingCountsWhatIsDropped(t *testing.T) {
	t.Parallel()
	k := servicekit.Start(t)
	d := k.Deps(schemas.Toolbroker)
	gone := make(chan struct{})
	full, err := d.Conn.NC.Subscribe(bus.RunCancelledSubject, func(*nats.Msg) { <-gone })
	if err != nil {
		t.Fatal(err)
	}
	defer close(gone)
	if err := full.SetPendingLimits(1, -1); err != nil {
		t.Fatal(err)
	}
	var h hearing
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if h.begin(over, d.Conn, full); !h.lost(d.Conn) {
		t.Error("it hears, and no server said so")
	}
	if h.begin(t.Context(), d.Conn, full); h.lost(d.Conn) {
		t.Fatal("it does not hear")
	}
	for n := 0; ; n++ {
		r := id.New[id.Run]()
		k.Say(schemas.Agentloop, eventlog.Draft{Key: string(r), Run: r, Event: run.Created{Run: r}})
		k.Say(schemas.Agentloop, eventlog.Draft{Key: string(r), Run: r, Event: run.Cancelled{Run: r}})
		if dropped, err := full.Dropped(); err != nil {
			t.Fatal(err)
		} else if dropped > 0 {
			break
		} else if n > 1000 {
			t.Fatal("nothing is dropped")
		}
	}
	if !h.lost(d.Conn) {
		t.Error("what was dropped is taken for heard")
	}
}
