package approvals_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/approvals"
)

// escalating holds a call under a grant that escalates after a second.
func (h *house) escalating(c id.Call) approval.Requested {
	h.t.Helper()
	seq := h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_1", Event: call.Requested{Call: c, Run: "run_1", Agent: "agt_a", Tool: "x.y", Body: call.Args{Args: json.RawMessage(`{}`)}}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "run_1", Event: call.Held{Call: c, Run: "run_1", Agent: "agt_a", Tool: "x.y", Grant: "grt_1", Digest: "d", Reason: "r", EscalateAfter: 1, Requested: seq}})
	r, _ := servicekit.Await[approval.Requested](h.Kit, 1, func(r approval.Requested) bool { return r.Call == c })
	return r
}

func TestEscalation(t *testing.T) {
	h := start(t, time.Hour)
	decided := h.escalating("call_decided")
	q := ask.DecideApproval{Approval: decided.Approval, Digest: "d", Approve: true}
	if _, err := h.ask("approval_decide", servicekit.Owner(), q); err != nil {
		t.Fatal(err)
	}
	r := h.escalating("call_1")
	got, at := servicekit.Await[approval.Escalated](h.Kit, 1, nil)
	if got.Approval != r.Approval || got.Digest != "d" || at.Envelope.Time.Before(r.EscalateAt) || r.EscalateAt.IsZero() {
		t.Errorf("%+v at %s, due %s", got, at.Envelope.Time, r.EscalateAt)
	}
	if a, err := h.show("approval_show", servicekit.Owner(), ask.ShowApproval{Approval: r.Approval}); err != nil || !a.Escalated || a.State != "waiting" {
		t.Errorf("%+v, %v", a, err)
	}
	q.Approval = r.Approval
	if a, err := h.show("approval_decide", servicekit.Owner(), q); err != nil || a.State != "approved" || !a.Escalated {
		t.Errorf("after the escalation: %+v, %v", a, err)
	}
	h.escalating("call_2") // a later sweep, behind which nothing of the others is left to say
	servicekit.Await[approval.Escalated](h.Kit, 2, nil)
	if n := len(h.Events(schemas.Activity, "approval.escalated")); n != 2 {
		t.Errorf("%d escalations", n)
	}
}

// Its time comes while no instance runs: the next one says it, once.
func TestEscalationSurvivesARestart(t *testing.T) {
	h := start(t, time.Hour)
	r := h.escalating("call_1")
	h.stop()
	s, err := approvals.New(config(time.Hour), h.Deps(schemas.Approvals))
	if err != nil {
		t.Fatal(err)
	}
	h.Run(s)
	if got, _ := servicekit.Await[approval.Escalated](h.Kit, 1, nil); got.Approval != r.Approval {
		t.Errorf("%+v", got)
	}
}

// An approval that would escalate when it is over does not.
func TestNoEscalationAfterTheEnd(t *testing.T) {
	h := start(t, time.Second)
	r := h.escalating("call_1")
	servicekit.Await[approval.Expired](h.Kit, 1, nil)
	if n := len(h.Events(schemas.Activity, "approval.escalated")); n != 0 || !r.EscalateAt.IsZero() {
		t.Errorf("%d escalations, %s", n, r.EscalateAt)
	}
}
