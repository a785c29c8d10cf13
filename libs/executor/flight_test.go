package executor

import (
	"testing"

	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// What is in flight ends when its grant, its agent or its connection is no more or its run is cancelled, says which, and
// nothing else ends it.
func TestWhatEndsAFlight(t *testing.T) {
	g := newGrants()
	for _, grant := range []id.Grant{"grt_a", "grt_b"} {
		g.set("tnt_a", grant, 1, true)
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

	g.removed("tnt_other", "agt_b", "con_tickets")
	g.cancelRun("tnt_other", "run_b")
	if byGrant()+byAgent()+byConnection()+byRun()+stays() != "" {
		t.Fatal("another tenant's end ended a flight")
	}
	g.set("tnt_a", "grt_a", 2, false)
	g.removed("tnt_a", "agt_b", "")
	g.removed("tnt_a", "", "con_tickets")
	g.cancelRun("tnt_a", "run_b")
	if byGrant() != Revoked || byAgent() != errRemoved.Message || byConnection() != errRemoved.Message || byRun() != errRunEnds.Message {
		t.Errorf("ended: by grant %q, by agent %q, by connection %q, by run %q", byGrant(), byAgent(), byConnection(), byRun())
	}
	if stays() != "" {
		t.Error("a flight ended that nothing was said of")
	}
	if _, _, err := g.enter(t.Context(), &Work{Tenant: "tnt_a", Admitted: call.Admitted{Call: "call_5", Grant: "grt_a"}}); err == nil {
		t.Error("a call entered under a revoked grant")
	}
}
