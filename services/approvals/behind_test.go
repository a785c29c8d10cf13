package approvals

import (
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/notice"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/services/approvals/internal/backlog"
)

// An instance that is behind, as each is after its start, gives up no notice: that it knows of no target, or of a
// removed one, may be because it has not heard of it yet.
func TestWhoIsBehindGivesUpNoNotice(t *testing.T) {
	t.Parallel()
	k := servicekit.Start(t)
	s, err := New(Config{ApprovalLife: time.Hour, NoticeRetry: time.Second}, k.Deps(schemas.Approvals))
	if err != nil {
		t.Fatal(err)
	}
	seq := k.Say(schemas.Approvals, eventlog.Draft{Key: "tgt_gone", Event: target.Defined{Target: "tgt_gone", Type: target.Webhook, Removed: true}})
	removed, err := k.As(schemas.Approvals).ReadAt(t.Context(), schemas.Control, seq)
	if err != nil {
		t.Fatal(err)
	}
	s.apply(removed) // and it is on its way to hear that it was defined again
	for _, n := range []backlog.Notice{
		{Tenant: servicekit.Tenant, At: time.Now(), Queued: notice.Queued{Notice: "ntc_1", Target: "tgt_gone"}},
		{Tenant: servicekit.Tenant, At: time.Now(), Queued: notice.Queued{Notice: "ntc_2", Target: "tgt_unheard"}},
	} {
		if err := s.attempt(t.Context(), n); problem.CodeOf(err) != problem.Unavailable {
			t.Errorf("%s: %v", n.Target, err)
		}
	}
	if given := k.Events(schemas.Activity, notice.Failed{}.Kind()); len(given) != 0 {
		t.Errorf("given up: %s", given[0].Raw)
	}
}

// Nor does it end an approval: after its start it hears that a grant was revoked before it hears that it was made again.
func TestWhoIsBehindEndsNoApproval(t *testing.T) {
	t.Parallel()
	k := servicekit.Start(t)
	s, err := New(Config{ApprovalLife: time.Hour, NoticeRetry: time.Second}, k.Deps(schemas.Approvals))
	if err != nil {
		t.Fatal(err)
	}
	seq := k.Say(schemas.Approvals, eventlog.Draft{Key: "grt_1", Event: grant.Revoked{Grant: "grt_1", Agent: "agt_a"}})
	revoked, err := k.As(schemas.Approvals).ReadAt(t.Context(), schemas.Control, seq)
	if err != nil {
		t.Fatal(err)
	}
	k.Say(schemas.Approvals, eventlog.Draft{Key: "grt_1", Event: grant.Created{Grant: "grt_1", Agent: "agt_a"}})
	k.Say(schemas.Approvals, eventlog.Draft{Key: "apr_1", Event: approval.Requested{Approval: "apr_1", Call: "call_1", Run: "run_1", Agent: "agt_a", Tool: "x.y", Grant: "grt_1", Digest: "d", ExpiresAt: time.Now().Add(time.Hour)}})
	s.apply(revoked)
	if err := s.sayDue(t.Context()); err != nil {
		t.Error(err)
	}
	if ended := k.Events(schemas.Activity, approval.Expired{}.Kind()); len(ended) != 0 {
		t.Errorf("ended: %s", ended[0].Raw)
	}
}
