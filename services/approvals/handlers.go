package approvals

import (
	"context"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

const (
	actor       = "service:" + string(schemas.Approvals)
	allApproval = "ew.v1.*.approval.>"
)

// onHeld opens an approval for a held call.
func (s *Service) onHeld(ctx context.Context, h bus.Heard) error {
	held, ok := h.Event.(call.Held)
	if !ok {
		return nil
	}
	stored, err := s.deps.Log.ReadAt(ctx, schemas.Activity, held.Requested)
	if err != nil && problem.CodeOf(err) != problem.NotFound {
		return err
	}
	request, err := eventlog.Decode[call.Requested](stored)
	if err != nil || request.Call != held.Call || stored.At.Tenant != h.At.Tenant {
		s.log.ErrorContext(ctx, "held call names a request that is not its own", "call", held.Call, "seq", h.Seq, "err", err)
		return nil
	}
	startedBy, err := s.startedBy(ctx, h.At.Tenant, held.Run)
	if err != nil {
		return err
	}
	a := id.Derive[id.Approval](string(h.At.Tenant), string(held.Call), held.Digest)
	expires := h.Envelope.Time.Add(s.cfg.ApprovalLife)
	var escalates time.Time
	if held.EscalateAfter > 0 {
		escalates = h.Envelope.Time.Add(time.Duration(held.EscalateAfter) * time.Second)
	}
	if !escalates.Before(expires) {
		escalates = time.Time{} // it expires first
	}
	_, err = s.deps.Log.AppendAfter(ctx, eventlog.Draft{
		Tenant: h.At.Tenant, Key: string(a), Run: held.Run, Actor: actor, Causation: h.Envelope.ID, Correlation: h.Envelope.Correlation,
		ID: id.Derive[id.Event](string(a), "requested"),
		Event: approval.Requested{
			Approval: a, Call: held.Call, Run: held.Run, Agent: held.Agent, Tool: held.Tool, Grant: held.Grant, LentGrant: held.Lent.Grant, Digest: held.Digest,
			Reason: held.Reason, Quorum: held.Quorum, Approver: held.Approver, FourEyes: held.FourEyes, StartedBy: startedBy, Requested: held.Requested, EscalateAt: escalates, ExpiresAt: expires,
			Body: approval.Shown(request.Body),
		},
	}, 0)
	if err != nil && problem.CodeOf(err) != problem.Conflict { // a conflict: opened at an earlier hearing
		return err
	}
	// A run may have been cancelled before its approval was opened, which onCancelled has not seen then.
	over, err := standing.RunCancelled(ctx, s.deps.Log, h.At.Tenant, held.Run)
	if err != nil || !over {
		return err
	}
	return s.sayCancelled(ctx, h.At.Tenant, held.Run)
}

// startedBy is the member who started a run, "" when none did.
func (s *Service) startedBy(ctx context.Context, tenant id.Tenant, r id.Run) (id.Member, error) {
	created, err := s.deps.Log.Last(ctx, schemas.Activity, schemas.SubjectOf(tenant, run.Created{}.Kind(), string(r), "").String())
	if problem.CodeOf(err) == problem.NotFound {
		return "", nil // a conversation of an external client
	}
	if err != nil {
		return "", err
	}
	by, err := id.Parse[id.Member](created.Envelope.Actor)
	if err != nil {
		return "", nil // a trigger
	}
	return by, nil
}

// sayDue says of every approval past its time that it is, and of each that waits for long that more people are to be told.
// Who decides at the same moment wins or loses by the expected sequence; what lost is not due any more.
func (s *Service) sayDue(ctx context.Context) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	for _, due := range s.book.DueAt(s.now()) {
		if due.Expired {
			if err := s.expire(ctx, due, ""); err != nil {
				return err
			}
			continue
		}
		r := due.State.Waits()
		_, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{
			Tenant: due.Tenant, Key: string(r.Approval), Run: r.Run, Actor: actor, ID: id.Derive[id.Event](string(r.Approval), approval.Escalated{}.Kind()),
			Event: approval.Escalated{Approval: r.Approval, Call: r.Call, Run: r.Run, Digest: r.Digest},
		}, due.State.Seq)
		if err != nil && problem.CodeOf(err) != problem.Conflict {
			return err
		}
	}
	return s.sayMoot(ctx)
}

// refresh writes the book up to the end of the stream.
func (s *Service) refresh(ctx context.Context) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	for e, err := range s.deps.Log.Read(ctx, schemas.Activity, allApproval, s.read+1) {
		if err != nil {
			return err
		}
		if ev, err := e.Envelope.Decode(); err == nil {
			s.book.Apply(e.At.Tenant, id.Approval(e.At.Key), e.Seq, ev)
		}
		s.read = e.Seq
	}
	return nil
}
