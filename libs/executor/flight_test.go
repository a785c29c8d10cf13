package executor

import (
	"strconv"
	"testing"

	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// What is in flight ends when its grant, its agent or its connection is no more or its run is cancelled, says which, and
// nothing else ends it.
func TestWhatEndsAFlight(t *testing.T) {
	g := newFlights()
	for _, grant := range []id.Grant{"grt_a", "grt_b"} {
		g.set(thing{"tnt_a", string(grant)}, 1, true)
	}
	enter := func(n id.Call, grant id.Grant, agent id.Agent, tool string, run id.Run) (ended func() string) {
		t.Helper()
		w := &Work{Tenant: "tnt_a", Admitted: call.Admitted{Call: n, Run: run, Grant: grant}, Requested: call.Requested{Call: n, Agent: agent, Tool: tool}}
		ctx, leave, err := g.enter(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		return func() string { return Stopped(ctx) }
	}
	byGrant := enter("call_1", "grt_a", "agt_a", "github.x", "run_a")
	byAgent := enter("call_2", "grt_b", "agt_b", "github.x", "run_a")
	byConnection := enter("call_3", "grt_b", "agt_c", "tickets.x", "run_a")
	byRun := enter("call_6", "grt_b", "agt_c", "github.x", "run_b")
	stays := enter("call_4", "grt_b", "agt_c", "github.x", "run_a")

	g.set(thing{"tnt_other", "agt_b"}, 2, false)
	g.set(thing{"tnt_other", "con_tickets"}, 2, false)
	g.cancelRun(thing{"tnt_other", "run_b"})
	if byGrant()+byAgent()+byConnection()+byRun()+stays() != "" {
		t.Fatal("another tenant's end ended a flight")
	}
	g.set(thing{"tnt_a", "grt_a"}, 2, false)
	g.set(thing{"tnt_a", "agt_b"}, 3, false)
	g.set(thing{"tnt_a", "con_tickets"}, 4, false)
	g.cancelRun(thing{"tnt_a", "run_b"})
	if byGrant() != Revoked || byAgent() != errRemoved.Message || byConnection() != errRemoved.Message || byRun() != errRunEnds.Message {
		t.Errorf("ended: by grant %q, by agent %q, by connection %q, by run %q", byGrant(), byAgent(), byConnection(), byRun())
	}
	if stays() != "" {
		t.Error("a flight ended that nothing was said of")
	}
	for name, c := range map[string]struct {
		grant id.Grant
		agent id.Agent
		tool  string
		run   id.Run
		why   string
	}{
		"revoked grant":      {"grt_a", "agt_c", "github.x", "run_a", Revoked},
		"unknown grant":      {"grt_x", "agt_c", "github.x", "run_a", Revoked},
		"removed agent":      {"grt_b", "agt_b", "github.x", "run_a", errRemoved.Message},
		"removed connection": {"grt_b", "agt_c", "tickets.x", "run_a", errRemoved.Message},
		"cancelled run":      {"grt_b", "agt_c", "github.x", "run_b", errRunEnds.Message},
	} {
		w := &Work{Tenant: "tnt_a", Admitted: call.Admitted{Call: "call_5", Run: c.run, Grant: c.grant}, Requested: call.Requested{Agent: c.agent, Tool: c.tool}}
		if _, _, err := g.enter(t.Context(), w); StoppedBy(err) != c.why {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Defined again, it may be used again.
	g.set(thing{"tnt_a", "agt_b"}, 5, true)
	enter("call_7", "grt_b", "agt_b", "github.x", "run_a")
}

// Runs that were cancelled are remembered up to a bound, the newest last.
func TestCancelledRunsAreBounded(t *testing.T) {
	f := newFlights()
	f.set(thing{"tnt_a", "grt_a"}, 1, true)
	for i := range 2*maxCancelled + 1 {
		f.cancelRun(thing{"tnt_a", strconv.Itoa(i)})
		f.cancelRun(thing{"tnt_a", strconv.Itoa(i)})
	}
	if len(f.cancelled) != maxCancelled || len(f.oldest) != maxCancelled {
		t.Errorf("%d and %d are remembered", len(f.cancelled), len(f.oldest))
	}
	w := &Work{Tenant: "tnt_a", Admitted: call.Admitted{Grant: "grt_a", Run: id.Run(strconv.Itoa(2 * maxCancelled))}}
	if _, _, err := f.enter(t.Context(), w); StoppedBy(err) != errRunEnds.Message {
		t.Error("the newest is forgotten")
	}
}
