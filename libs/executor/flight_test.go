package executor

import (
	"testing"

	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// What is in flight ends when its grant, its agent or its connection is no more, and nothing else does.
func TestWhatEndsAFlight(t *testing.T) {
	g := newGrants()
	for _, grant := range []id.Grant{"grt_a", "grt_b"} {
		g.set("tnt_a", grant, 1, true)
	}
	enter := func(n id.Call, grant id.Grant, agent id.Agent, tool string) (ended func() bool) {
		t.Helper()
		w := &Work{Tenant: "tnt_a", Admitted: call.Admitted{Call: n, Grant: grant}, Requested: call.Requested{Call: n, Agent: agent, Tool: tool}}
		ctx, leave, err := g.enter(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		return func() bool { return Revoked(ctx) }
	}
	byGrant := enter("call_1", "grt_a", "agt_a", "github.x")
	byAgent := enter("call_2", "grt_b", "agt_b", "github.x")
	byConnection := enter("call_3", "grt_b", "agt_c", "tickets.x")
	stays := enter("call_4", "grt_b", "agt_c", "github.x")

	g.removed("tnt_other", "agt_b", "con_tickets")
	if byGrant() || byAgent() || byConnection() || stays() {
		t.Fatal("another tenant's end ended a flight")
	}
	g.set("tnt_a", "grt_a", 2, false)
	g.removed("tnt_a", "agt_b", "")
	g.removed("tnt_a", "", "con_tickets")
	if !byGrant() || !byAgent() || !byConnection() {
		t.Errorf("ended: by grant %v, by agent %v, by connection %v", byGrant(), byAgent(), byConnection())
	}
	if stays() {
		t.Error("a flight ended that nothing was said of")
	}
	if _, _, err := g.enter(t.Context(), &Work{Tenant: "tnt_a", Admitted: call.Admitted{Call: "call_5", Grant: "grt_a"}}); err == nil {
		t.Error("a call entered under a revoked grant")
	}
}
