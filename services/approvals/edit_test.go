package approvals_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/run"
)

// broker plays the tool broker, to which every edit has the digest of its text; evil ones it would refuse.
func (h *house) broker() *atomic.Int64 {
	asked := &atomic.Int64{}
	servicekit.Answer(h.Kit, schemas.Toolbroker, "edit_check", func(_ context.Context, who rpc.Caller, q ask.CheckEdit) (ask.CheckedEdit, error) {
		asked.Add(1)
		if who.Tenant != servicekit.Tenant || q.Run != "run_1" || q.Requested == 0 {
			h.t.Errorf("the broker is asked %+v by %+v", q, who)
		}
		if strings.Contains(string(q.Args), "evil") {
			return ask.CheckedEdit{}, problem.New(problem.Denied, "with these arguments the call would be refused")
		}
		return ask.CheckedEdit{Args: q.Args, Digest: "of " + string(q.Args), Grant: "grt_2", Reason: "edited", FourEyes: true, Quorum: 2}, nil
	})
	return asked
}

func (h *house) show(method string, who rpc.Caller, q any) (ask.Approval, error) {
	raw, err := h.ask(method, who, q)
	var a ask.Approval
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	return a, err
}

func TestEdit(t *testing.T) {
	h := start(t, time.Hour)
	h.broker()
	h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Actor: "mem_starter", Event: run.Created{Run: "run_1"}})
	r := h.hold("call_1", `{"a":1}`)
	if r.StartedBy != "mem_starter" {
		t.Errorf("started by %q", r.StartedBy)
	}
	ann, bob, cid := servicekit.Caller("mem_ann", member.Approver), servicekit.Caller("mem_bob", member.Admin), servicekit.Caller("mem_cid", member.Owner)
	edit := ask.EditApproval{Approval: r.Approval, Digest: r.Digest, Args: json.RawMessage(`{"a":2}`), Note: "two"}
	for name, c := range map[string]struct {
		who    rpc.Caller
		change func(*ask.EditApproval)
		want   problem.Code
	}{
		"an auditor":          {servicekit.Caller("mem_x", member.Auditor), nil, problem.Denied},
		"an agent":            {servicekit.Caller("agt_a", member.Owner), nil, problem.Denied},
		"another tenant":      {rpc.Caller{Tenant: "tnt_b", Actor: "mem_x", Role: "owner"}, nil, problem.NotFound},
		"another digest":      {ann, func(q *ask.EditApproval) { q.Digest = "other" }, problem.Conflict},
		"what is refused":     {ann, func(q *ask.EditApproval) { q.Args = json.RawMessage(`{"a":"evil"}`) }, problem.Denied},
		"everybody's":         {ann, func(q *ask.EditApproval) { q.Approval = "*" }, problem.Invalid},
		"a very long note":    {ann, func(q *ask.EditApproval) { q.Note = strings.Repeat("x", 4<<10+1) }, problem.Invalid},
		"one that is not one": {ann, func(q *ask.EditApproval) { q.Approval = "apr_none" }, problem.NotFound},
	} {
		q := edit
		if c.change != nil {
			c.change(&q)
		}
		if _, err := h.ask("approval_edit", c.who, q); problem.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if n := len(h.Events(schemas.Activity, "approval.edited")); n != 0 {
		t.Fatalf("%d edits are recorded", n)
	}
	for range 2 { // the second time is one whose answer was lost
		a, err := h.show("approval_edit", ann, edit)
		if err != nil || a.Digest != `of {"a":2}` || string(a.Body.Args) != `{"a":2}` || string(a.Asked) != `{"a":1}` || a.Grant != "grt_2" || a.Quorum != 2 || len(a.Editors) != 1 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	got, at := servicekit.Await[approval.Edited](h.Kit, 1, nil)
	if got.Replaces != r.Digest || got.By != "mem_ann" || at.Envelope.Actor != "mem_ann" || got.Body.Note != "two" {
		t.Errorf("%+v by %s", got, at.Envelope.Actor)
	}
	// Who asked for it, by starting the run or by an edit, does not approve it; a decision about what waited before is none.
	yes := ask.DecideApproval{Approval: r.Approval, Digest: got.Digest, Approve: true}
	for _, who := range []rpc.Caller{ann, servicekit.Caller("mem_starter", member.Owner)} {
		if _, err := h.ask("approval_decide", who, yes); problem.CodeOf(err) != problem.Denied {
			t.Errorf("%s: %v", who.Actor, err)
		}
	}
	if _, err := h.ask("approval_decide", bob, ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: true}); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("the old digest: %v", err)
	}
	// A vote is void once somebody edits, also back to what was voted for.
	dan := servicekit.Caller("mem_dan", member.Approver)
	if a, err := h.show("approval_decide", cid, yes); err != nil || a.State != "waiting" || len(a.Votes) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, text := range []string{`{"a":3}`, `{"a":2}`} {
		a, err := h.show("approval_show", dan, ask.ShowApproval{Approval: r.Approval})
		if err != nil {
			t.Fatal(err)
		}
		if a, err = h.show("approval_edit", dan, ask.EditApproval{Approval: r.Approval, Digest: a.Digest, Args: json.RawMessage(text)}); err != nil || len(a.Votes) != 0 {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	if a, err := h.show("approval_decide", bob, yes); err != nil || a.State != "waiting" {
		t.Fatalf("one of two: %+v, %v", a, err)
	}
	if a, err := h.show("approval_decide", cid, yes); err != nil || a.State != "approved" {
		t.Fatalf("two of two: %+v, %v", a, err)
	}
	decided, _ := servicekit.Await[approval.Decided](h.Kit, 1, nil)
	_, last := servicekit.Await[approval.Edited](h.Kit, 3, nil)
	if decided.Digest != `of {"a":2}` || decided.Edited != last.Seq {
		t.Errorf("%+v, the last edit is %d", decided, last.Seq)
	}
	if _, err := h.ask("approval_edit", ann, ask.EditApproval{Approval: r.Approval, Digest: decided.Digest, Args: json.RawMessage(`{}`)}); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("edited after the decision: %v", err)
	}
}

// Of an edit and a decision that race, one wins, and the decision is never about what the other put there.
func TestEditAndDecisionRace(t *testing.T) {
	h := start(t, time.Hour)
	h.broker()
	r := h.hold("call_1", `{"a":1}`)
	var wait sync.WaitGroup
	var won atomic.Int64
	count := func(err error) {
		switch problem.CodeOf(err) {
		case "":
			won.Add(1)
		case problem.Conflict:
		default:
			t.Error(err)
		}
	}
	for _, who := range []string{"mem_a", "mem_b", "mem_c"} {
		wait.Go(func() {
			_, err := h.ask("approval_edit", servicekit.Caller(who, member.Approver), ask.EditApproval{Approval: r.Approval, Digest: r.Digest, Args: json.RawMessage(`{"by":"` + who + `"}`)})
			count(err)
		})
		wait.Go(func() {
			_, err := h.ask("approval_decide", servicekit.Caller(who, member.Approver), ask.DecideApproval{Approval: r.Approval, Digest: r.Digest, Approve: true})
			count(err)
		})
	}
	wait.Wait()
	events := len(h.Events(schemas.Activity, "approval.edited", "approval.decided"))
	if won.Load() != 1 || events != 1 {
		t.Errorf("%d won, %d are recorded", won.Load(), events)
	}
}

// Arguments that are too large for an event's envelope are kept apart, and edited like any others.
func TestEditOfLargeArguments(t *testing.T) {
	h := start(t, time.Hour)
	h.broker()
	r := h.hold("call_1", `{"a":"`+strings.Repeat("x", 200<<10)+`"}`)
	large := json.RawMessage(`{"a":"` + strings.Repeat("y", 200<<10) + `"}`)
	a, err := h.show("approval_edit", servicekit.Owner(), ask.EditApproval{Approval: r.Approval, Digest: r.Digest, Args: large})
	if err != nil || string(a.Body.Args) != string(large) {
		t.Fatalf("%.100v, %v", a, err)
	}
	if a, err = h.show("approval_show", servicekit.Owner(), ask.ShowApproval{Approval: r.Approval}); err != nil || string(a.Body.Args) != string(large) {
		t.Errorf("%.100v, %v", a, err)
	}
}

// Without the broker nothing is edited: nobody else knows what the grants say of the new arguments.
func TestEditWithoutTheBroker(t *testing.T) {
	h := start(t, time.Hour)
	r := h.hold("call_1", `{"a":1}`)
	_, err := h.ask("approval_edit", servicekit.Owner(), ask.EditApproval{Approval: r.Approval, Digest: r.Digest, Args: json.RawMessage(`{}`)})
	if problem.CodeOf(err) != problem.Unavailable || len(h.Events(schemas.Activity, "approval.edited")) != 0 {
		t.Error(err)
	}
}

// What the grant says of who approves goes from the held call to the approval.
func TestFourEyesIsOfTheGrant(t *testing.T) {
	h := start(t, time.Hour)
	h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Actor: "mem_starter", Event: run.Created{Run: "run_1"}})
	seq := h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Event: call.Requested{Call: "call_1", Run: "run_1", Agent: "agt_a", Tool: "x.y", Body: call.Args{Args: json.RawMessage(`{}`)}}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Event: call.Held{Call: "call_1", Run: "run_1", Agent: "agt_a", Tool: "x.y", Grant: "grt_1", Digest: "d", Reason: "r", FourEyes: true, Requested: seq}})
	r, _ := servicekit.Await[approval.Requested](h.Kit, 1, nil)
	q := ask.DecideApproval{Approval: r.Approval, Digest: "d", Approve: true}
	starter := servicekit.Caller("mem_starter", member.Owner)
	if _, err := h.ask("approval_decide", starter, q); problem.CodeOf(err) != problem.Denied {
		t.Errorf("the starter approves: %v", err)
	}
	q.Approve = false
	if a, err := h.show("approval_decide", starter, q); err != nil || a.State != "denied" {
		t.Errorf("the starter takes it back: %+v, %v", a, err)
	}
}
