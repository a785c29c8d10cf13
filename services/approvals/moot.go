package approvals

import (
	"context"
	"strings"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/approvals/internal/book"
)

// An approval is moot when the call cannot be made any more, whatever is decided: its grant is revoked, its agent or
// connection removed, its run cancelled. Then it is said to have expired, and why, so that nobody is asked in vain. The
// broker refuses such a call by itself; saying it here is a courtesy, and may come late.
const (
	grantRevoked      = "the grant was revoked"
	agentRemoved      = "the agent was removed"
	connectionRemoved = "the connection was removed"
	runCancelled      = "the run was cancelled"
)

// moot says why there is nothing to decide about an approval any more, "" when there is.
func (s *Service) moot(tenant id.Tenant, r approval.Requested) string {
	name, _, _ := strings.Cut(r.Tool, ".")
	for _, what := range []struct{ id, why string }{{string(r.Grant), grantRevoked}, {string(r.LentGrant), grantRevoked}, {string(r.Agent), agentRemoved}, {"con_" + name, connectionRemoved}} {
		if s.grounds.Gone(standing.Thing{Tenant: tenant, ID: what.id}) {
			return what.why
		}
	}
	return ""
}

// sayMoot says it of every approval that waits and is moot. An instance that is behind, as each is after its start, says
// nothing: what it heard the end of may have been made again.
func (s *Service) sayMoot(ctx context.Context) error {
	if s.view.Current() != nil {
		return nil
	}
	for _, w := range s.book.Waiting() {
		if why := s.moot(w.Tenant, w.State.Waits()); why != "" {
			if err := s.expire(ctx, w, why); err != nil {
				return err
			}
		}
	}
	return nil
}

// onCancelled says it of the approvals of a run that was cancelled.
func (s *Service) onCancelled(ctx context.Context, h bus.Heard) error {
	return s.sayCancelled(ctx, h.At.Tenant, id.Run(h.At.Key))
}

func (s *Service) sayCancelled(ctx context.Context, tenant id.Tenant, r id.Run) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	for _, w := range s.book.Waiting() {
		if w.Tenant == tenant && w.State.Requested.Run == r {
			if err := s.expire(ctx, w, runCancelled); err != nil {
				return err
			}
		}
	}
	return nil
}

// expire says that an approval's time is over, or with a reason that it is moot. Who decides at the same moment wins or
// loses by the expected sequence; what lost is looked at again.
func (s *Service) expire(ctx context.Context, w book.Due, why string) error {
	r := w.State.Waits()
	_, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{
		Tenant: w.Tenant, Key: string(r.Approval), Run: r.Run, Actor: actor, ID: id.Derive[id.Event](string(r.Approval), approval.Expired{}.Kind()),
		Event: approval.Expired{Approval: r.Approval, Call: r.Call, Run: r.Run, Digest: r.Digest, Requested: r.Requested, Reason: why},
	}, w.State.Seq)
	if problem.CodeOf(err) == problem.Conflict {
		return nil
	}
	return err
}
