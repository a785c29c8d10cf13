package approvals_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// say records an event of a member, and waits until the service has heard it.
func (h *house) say(ev schemas.Event, m id.Member) {
	h.t.Helper()
	seq := h.Say(schemas.Gateway, eventlog.Draft{Key: string(m), Event: ev})
	if _, err := h.ask("barrier", servicekit.Owner(), ask.Sequence{Seq: seq}); err != nil {
		h.t.Fatal(err)
	}
}

// holdFor is hold, with a quorum and a least role.
func (h *house) holdFor(c id.Call, quorum int, least member.Role) approval.Requested {
	h.t.Helper()
	seq := h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Event: call.Requested{Call: c, Run: "run_1", Agent: "agt_a", Tool: "x.y", Body: call.Args{Args: json.RawMessage(`{}`)}}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Event: call.Held{Call: c, Run: "run_1", Agent: "agt_a", Tool: "x.y", Grant: "grt_1", Digest: "digest-" + string(c), Reason: "r", Requested: seq, Quorum: quorum, Approver: least}})
	r, _ := servicekit.Await[approval.Requested](h.Kit, 1, func(r approval.Requested) bool { return r.Call == c })
	return r
}

// vote decides, in the role in which the gateway let the member in: the service does not take its word for ever.
func (h *house) vote(r approval.Requested, who id.Member, as member.Role, approve bool) (string, error) {
	h.t.Helper()
	raw, err := h.ask("approval_decide", servicekit.Caller(string(who), as), ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: approve})
	var a ask.Approval
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	return a.State, err
}

// A vote of somebody who was removed, or narrowed, since completes no quorum, and they decide nothing more.
func TestVotesOfThoseWhoWereRemoved(t *testing.T) {
	h := start(t, time.Hour)
	for _, m := range []id.Member{"mem_a", "mem_b", "mem_c", "mem_d"} {
		h.say(member.Added{Member: m, Role: member.Admin}, m)
	}
	r := h.holdFor("call_1", 2, member.Admin)
	if state, err := h.vote(r, "mem_a", member.Admin, true); state != "waiting" || err != nil {
		t.Fatal(state, err)
	}
	h.say(member.Removed{Member: "mem_a", Reason: "left"}, "mem_a")
	for _, approve := range []bool{true, false} {
		if _, err := h.vote(r, "mem_a", member.Owner, approve); problem.CodeOf(err) != problem.Denied {
			t.Errorf("a removed member decides %t: %v", approve, err)
		}
	}
	if state, err := h.vote(r, "mem_b", member.Admin, true); state != "waiting" || err != nil {
		t.Fatalf("the vote of a removed member completed the quorum: %s, %v", state, err)
	}
	raw, err := h.ask("approval_list", servicekit.Owner(), ask.ListApprovals{Open: true})
	var list ask.Approvals
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil || len(list.Approvals) != 1 || !slices.Equal(list.Approvals[0].Votes, []id.Member{"mem_b"}) {
		t.Errorf("%+v, %v", list, err)
	}
	// Narrowed below what the grant wants: neither the vote that was, nor another.
	h.say(member.Added{Member: "mem_b", Role: member.Approver}, "mem_b")
	if _, err := h.vote(r, "mem_b", member.Admin, true); problem.CodeOf(err) != problem.Denied {
		t.Errorf("the gateway said admin, and they are an approver: %v", err)
	}
	if state, err := h.vote(r, "mem_c", member.Admin, true); state != "waiting" || err != nil {
		t.Fatalf("the vote of a narrowed member completed the quorum: %s, %v", state, err)
	}
	// Widened again, the vote counts again: it was theirs.
	h.say(member.Added{Member: "mem_b", Role: member.Admin}, "mem_b")
	if state, err := h.vote(r, "mem_d", member.Auditor, true); problem.CodeOf(err) != problem.Denied {
		t.Errorf("a narrow token of an admin decides: %s, %v", state, err)
	}
	if state, err := h.vote(r, "mem_d", member.Admin, true); state != "approved" || err != nil {
		t.Errorf("two of those who may: %s, %v", state, err)
	}
	// Enough votes, of which one did not count for a while: whoever says it again decides.
	again := h.holdFor("call_again", 2, member.Admin)
	for _, m := range []id.Member{"mem_b", "mem_c"} {
		h.say(member.Added{Member: "mem_b", Role: member.Auditor}, "mem_b")
		if m == "mem_b" {
			h.say(member.Added{Member: "mem_b", Role: member.Admin}, "mem_b")
		}
		if state, err := h.vote(again, m, member.Admin, true); state != "waiting" || err != nil {
			t.Fatal(state, err)
		}
	}
	h.say(member.Added{Member: "mem_b", Role: member.Admin}, "mem_b")
	if state, err := h.vote(again, "mem_c", member.Admin, true); state != "approved" || err != nil {
		t.Errorf("two votes that count, said again: %s, %v", state, err)
	}
	// Another tenant's removal is another's.
	other := h.Say(schemas.Gateway, eventlog.Draft{Tenant: "tnt_b", Key: "mem_c", Event: member.Removed{Member: "mem_c"}})
	if _, err := h.ask("barrier", servicekit.Owner(), ask.Sequence{Seq: other}); err != nil {
		t.Fatal(err)
	}
	if state, err := h.vote(h.hold("call_2", `{}`), "mem_c", member.Admin, true); state != "approved" || err != nil {
		t.Errorf("%s, %v", state, err)
	}
}

// Whoever may grant no more lends nothing to an approval for the rest of the run: their vote is of the one call.
func TestForRunOfThoseWhoMayGrantNoMore(t *testing.T) {
	h := start(t, time.Hour)
	for _, m := range []id.Member{"mem_a", "mem_b"} {
		h.say(member.Added{Member: m, Role: member.Admin}, m)
	}
	r := h.holdFor("call_1", 2, "")
	q := ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: true, ForRun: true}
	if _, err := h.ask("approval_decide", servicekit.Caller("mem_a", member.Approver), q); problem.CodeOf(err) != problem.Denied {
		t.Errorf("a narrow token of an admin grants: %v", err)
	}
	if a, err := h.show("approval_decide", servicekit.Caller("mem_a", member.Admin), q); err != nil || a.State != "waiting" {
		t.Fatalf("%+v, %v", a, err)
	}
	h.say(member.Added{Member: "mem_a", Role: member.Approver}, "mem_a")
	if _, err := h.ask("approval_decide", servicekit.Caller("mem_b", member.Admin), q); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("with the vote of one who may grant no more: %v", err)
	}
	q.ForRun = false
	if a, err := h.show("approval_decide", servicekit.Caller("mem_b", member.Admin), q); err != nil || a.State != "approved" || a.ForRun {
		t.Errorf("%+v, %v", a, err)
	}
}
