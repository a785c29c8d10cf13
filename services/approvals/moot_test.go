package approvals_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/approvals"
)

// waits holds a call and waits until its approval is open.
func (h *house) waits(c id.Call, r id.Run, a id.Agent, g id.Grant, tool string) approval.Requested {
	h.t.Helper()
	seq := h.Say(schemas.Agentloop, eventlog.Draft{Key: string(r), Event: call.Requested{Call: c, Run: r, Agent: a, Tool: tool, Body: call.Args{Args: json.RawMessage(`{}`)}}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(r), Event: call.Held{Call: c, Run: r, Agent: a, Tool: tool, Grant: g, Digest: "d", Reason: "r", Requested: seq}})
	opened, _ := servicekit.Await[approval.Requested](h.Kit, 1, func(r approval.Requested) bool { return r.Call == c })
	return opened
}

// What nobody can decide any more is said to be over, and why; the rest waits on.
func TestApprovalsThatAreMoot(t *testing.T) {
	h := start(t, time.Hour)
	stays := h.waits("call_stays", "run_1", "agt_a", "grt_1", "x.y")
	moot := map[string]approval.Requested{
		"the grant was revoked":      h.waits("call_1", "run_1", "agt_a", "grt_gone", "x.y"),
		"the agent was removed":      h.waits("call_2", "run_1", "agt_gone", "grt_1", "x.y"),
		"the connection was removed": h.waits("call_3", "run_1", "agt_a", "grt_1", "gone.y"),
		"the run was cancelled":      h.waits("call_4", "run_gone", "agt_a", "grt_1", "x.y"),
	}
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_gone", Event: grant.Revoked{Grant: "grt_gone", Agent: "agt_a"}})
	h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_gone", Event: agent.Defined{Agent: "agt_gone", Removed: true}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "con_gone", Event: connection.Defined{Connection: "con_gone", Removed: true}})
	h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_gone", Event: run.Cancelled{Run: "run_gone"}})
	for why, r := range moot {
		got, _ := servicekit.Await(h.Kit, 1, func(e approval.Expired) bool { return e.Approval == r.Approval })
		if got.Reason != why || got.Requested != r.Requested || got.Digest != r.Digest {
			t.Errorf("%s: %+v", why, got)
		}
		if _, err := h.ask("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: r.Approval, Digest: "d", Approve: true}); problem.CodeOf(err) != problem.Expired {
			t.Errorf("%s: it is decided all the same: %v", why, err)
		}
	}
	// What a connection lends to a call rests on a grant of its own.
	seq := h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Event: call.Requested{Call: "call_lent", Run: "run_1", Agent: "agt_a", Tool: "x.y", Body: call.Args{Args: json.RawMessage(`{}`)}}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Event: call.Held{Call: "call_lent", Run: "run_1", Agent: "agt_a", Tool: "x.y", Grant: "grt_1", Lent: call.Lent{Tool: "z.lent", Grant: "grt_lent"}, Digest: "d", Reason: "r", Requested: seq}})
	lent, _ := servicekit.Await[approval.Requested](h.Kit, 1, func(r approval.Requested) bool { return r.Call == "call_lent" })
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_lent", Event: grant.Revoked{Grant: "grt_lent", Agent: "agt_a"}})
	servicekit.Await(h.Kit, 1, func(e approval.Expired) bool {
		return e.Approval == lent.Approval && e.Reason == "the grant was revoked"
	})
	// A call that is held only after its run was cancelled is nobody's to decide either.
	late := h.waits("call_late", "run_gone", "agt_a", "grt_1", "x.y")
	servicekit.Await(h.Kit, 1, func(e approval.Expired) bool {
		return e.Approval == late.Approval && e.Reason == "the run was cancelled"
	})
	if a, err := h.show("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: stays.Approval, Digest: "d", Approve: true}); err != nil || a.State != "approved" {
		t.Errorf("the one that stays: %+v, %v", a, err)
	}
	if n := len(h.Events(schemas.Activity, "approval.expired")); n != len(moot)+2 {
		t.Errorf("%d expired", n)
	}
}

// What ends while no instance runs is said by the next one. A grant that is made again is no reason.
func TestMootWhileNobodyRan(t *testing.T) {
	h := start(t, time.Hour)
	gone := h.waits("call_1", "run_1", "agt_a", "grt_gone", "x.y")
	again := h.waits("call_2", "run_1", "agt_a", "grt_again", "x.y")
	over := h.waits("call_3", "run_gone", "agt_a", "grt_1", "x.y")
	h.stop()
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_gone", Event: grant.Revoked{Grant: "grt_gone", Agent: "agt_a"}})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_again", Event: grant.Revoked{Grant: "grt_again", Agent: "agt_a"}})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_again", Event: grant.Created{Grant: "grt_again", Agent: "agt_a", Approval: grant.Always, Selector: grant.Selector{Tool: "x.y"}}})
	h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_gone", Event: run.Cancelled{Run: "run_gone"}})
	s, err := approvals.New(config(time.Hour), h.Deps(schemas.Approvals))
	if err != nil {
		t.Fatal(err)
	}
	h.Run(s)
	for _, r := range []approval.Requested{gone, over} {
		servicekit.Await(h.Kit, 1, func(e approval.Expired) bool { return e.Approval == r.Approval && e.Reason != "" })
	}
	var a ask.Approval
	buskit.Eventually(t, "the new instance answers", func() bool {
		a, err = h.show("approval_show", servicekit.Owner(), ask.ShowApproval{Approval: again.Approval})
		return err == nil
	})
	if a.State != "waiting" {
		t.Errorf("%+v", a)
	}
}

// The agent whose call waits may give it up, and nobody else may; of who decides at the same moment and who gives up, one wins.
func TestWithdrawn(t *testing.T) {
	h := start(t, time.Hour)
	r := h.waits("call_1", "run_1", "agt_a", "grt_1", "x.y")
	withdraw := func(who rpc.Caller, a id.Approval) (w ask.Withdrawn, err error) {
		raw, err := h.ask("approval_withdraw", who, ask.WithdrawApproval{Approval: a})
		if err == nil {
			err = json.Unmarshal(raw, &w)
		}
		return w, err
	}
	agent := rpc.Caller{Tenant: servicekit.Tenant, Actor: "agt_a"}
	for name, c := range map[string]struct {
		who  rpc.Caller
		of   id.Approval
		want problem.Code
	}{
		"another agent":        {rpc.Caller{Tenant: servicekit.Tenant, Actor: "agt_b"}, r.Approval, problem.NotFound},
		"a member":             {servicekit.Owner(), r.Approval, problem.NotFound},
		"another tenant's":     {rpc.Caller{Tenant: "tnt_b", Actor: "agt_a"}, r.Approval, problem.NotFound},
		"one that is not open": {agent, "apr_none", problem.NotFound},
		"everybody's":          {agent, "*", problem.Invalid},
	} {
		if _, err := withdraw(c.who, c.of); problem.CodeOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 { // whoever was not answered asks again
		if w, err := withdraw(agent, r.Approval); err != nil || !w.Withdrawn {
			t.Errorf("%+v, %v", w, err)
		}
	}
	got, _ := servicekit.Await(h.Kit, 1, func(e approval.Expired) bool { return e.Approval == r.Approval })
	if got.Reason != approval.Withdrawn || got.Requested != r.Requested || h.ends(r.Approval) != 1 {
		t.Errorf("%+v", got)
	}
	if _, err := h.ask("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: r.Approval, Digest: "d", Approve: true}); problem.CodeOf(err) != problem.Expired {
		t.Errorf("it is decided all the same: %v", err)
	}
	decided := h.waits("call_2", "run_1", "agt_a", "grt_1", "x.y")
	if _, err := h.ask("approval_decide", servicekit.Owner(), ask.DecideApproval{Approval: decided.Approval, Digest: "d", Approve: true}); err != nil {
		t.Fatal(err)
	}
	if w, err := withdraw(agent, decided.Approval); err != nil || w.Withdrawn || h.ends(decided.Approval) != 1 {
		t.Errorf("a decision was taken back: %+v, %v", w, err)
	}
}
