package approvals

import (
	"context"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/grantcheck"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/approvals/internal/book"
)

// maxNote is the longest note to a decision, in bytes.
const maxNote = 4 << 10

func (s *Service) answer() (*rpc.Server, error) {
	return s.deps.Answer(
		rpc.On("grant_create", s.createGrant),
		rpc.On("grant_revoke", s.revokeGrant),
		rpc.On("approval_decide", s.decideApproval),
		rpc.On("approval_list", s.listApprovals),
		barrier.Answer(s.view),
	)
}

func (s *Service) createGrant(ctx context.Context, who rpc.Caller, q ask.CreateGrant) (ask.Sequence, error) {
	g := q.Grant
	if !member.Role(who.Role).MayConfigure() {
		return ask.Sequence{}, problem.New(problem.Denied, "a %s may not make grants", who.Role)
	}
	if err := grantcheck.Check(g, s.now()); err != nil {
		return ask.Sequence{}, err
	}
	last, _, err := s.grant(ctx, who.Tenant, g.Grant)
	if err != nil {
		return ask.Sequence{}, err
	}
	seq, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{Event: g, Tenant: who.Tenant, Key: string(g.Grant), Actor: who.Actor}, last)
	return ask.Sequence{Seq: seq}, err
}

// revokeGrant returns when the revocation is in force: from then on nothing starts under the grant.
func (s *Service) revokeGrant(ctx context.Context, who rpc.Caller, q ask.RevokeGrant) (ask.InForce, error) {
	if !member.Role(who.Role).MayConfigure() {
		return ask.InForce{}, problem.New(problem.Denied, "a %s may not revoke grants", who.Role)
	}
	if len(q.Reason) > maxNote || !valid[id.Grant](q.Grant) {
		return ask.InForce{}, problem.New(problem.Invalid, "a revocation needs a grant's id, and a reason of at most %d bytes", maxNote)
	}
	last, active, err := s.grant(ctx, who.Tenant, q.Grant)
	switch {
	case err != nil:
		return ask.InForce{}, err
	case last == 0:
		return ask.InForce{}, problem.New(problem.NotFound, "there is no grant %s", q.Grant)
	case active == nil:
		// Revoked before; whoever asks again may do so because it could not be confirmed then.
		return barrier.Wait(ctx, s.deps.Conn, who, last)
	}
	seq, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{
		Event:  grant.Revoked{Grant: q.Grant, Agent: active.Agent, Reason: q.Reason},
		Tenant: who.Tenant, Key: string(q.Grant), Actor: who.Actor,
	}, last)
	if err != nil {
		return ask.InForce{}, err
	}
	return barrier.Wait(ctx, s.deps.Conn, who, seq)
}

// grant reads a grant's last sequence, and its state while it is active.
func (s *Service) grant(ctx context.Context, tenant id.Tenant, g id.Grant) (last uint64, active *grant.Created, err error) {
	filter := schemas.SubjectOf(tenant, "grant.created", string(g), "").Filter()
	for e, err := range s.deps.Log.Read(ctx, schemas.Control, filter, 1) {
		if err != nil {
			return 0, nil, err
		}
		last, active = e.Seq, nil
		if c, err := eventlog.Decode[grant.Created](e); err == nil {
			active = &c
		}
	}
	return last, active, nil
}

func (s *Service) decideApproval(ctx context.Context, who rpc.Caller, q ask.DecideApproval) (ask.Approval, error) {
	by, err := id.Parse[id.Member](who.Actor)
	if err != nil || !member.Role(who.Role).MayApprove() {
		return ask.Approval{}, problem.New(problem.Denied, "only a member with role owner, admin or approver decides on approvals")
	}
	role, err := s.standing(who.Tenant, by, member.Role(who.Role))
	if err != nil {
		return ask.Approval{}, err
	}
	if !role.MayApprove() {
		return ask.Approval{}, problem.New(problem.Denied, "a member with role %s does not decide on approvals", role)
	}
	if len(q.Note) > maxNote || !valid[id.Approval](q.Approval) {
		return ask.Approval{}, problem.New(problem.Invalid, "a decision needs an approval's id, and a note of at most %d bytes", maxNote)
	}
	var state book.State
	var correlation string // of the run's trace: the decision belongs to it, not to the request that brought it
	filter := schemas.SubjectOf(who.Tenant, "approval.requested", string(q.Approval), "").Filter()
	for e, err := range s.deps.Log.Read(ctx, schemas.Activity, filter, 1) {
		if err != nil {
			return ask.Approval{}, err
		}
		if ev, err := e.Envelope.Decode(); err == nil {
			state.Apply(e.Seq, ev)
			correlation = e.Envelope.Correlation
		}
	}
	s.count(who.Tenant, &state)
	next, err := state.Decide(q, book.Decider{Member: by, Role: role}, s.now())
	if err != nil {
		return ask.Approval{}, err
	}
	if next != nil {
		seq, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{
			Event: next, Tenant: who.Tenant, Key: string(q.Approval), Run: state.Requested.Run, Actor: who.Actor, Correlation: correlation,
		}, state.Seq)
		if problem.CodeOf(err) == problem.Conflict {
			return ask.Approval{}, problem.Wrap(err, problem.Conflict, "somebody decided at the same moment; look at it again")
		}
		if err != nil {
			return ask.Approval{}, err
		}
		state.Apply(seq, next)
	}
	return state.Show(s.now()), nil
}

func (s *Service) listApprovals(ctx context.Context, who rpc.Caller, q ask.ListApprovals) (ask.Approvals, error) {
	if err := s.refresh(ctx); err != nil {
		return ask.Approvals{}, err
	}
	list := s.book.List(who.Tenant, q.Open, s.now())
	for i := range list {
		list[i].Votes = s.counting(who.Tenant, list[i].Votes, list[i].Approver)
	}
	return ask.Approvals{Approvals: list[:fitting(list)]}, nil
}

// Bounds of an answer: arguments are part of each approval, and more than one message carries would be no answer at all.
const (
	maxListed      = 100
	maxListedBytes = 768 << 10
)

// fitting is how many of the first approvals fit into an answer.
func fitting(list []ask.Approval) int {
	n, left := 0, maxListedBytes
	for n < min(len(list), maxListed) {
		left -= len(list[n].Body.Args) + 4<<10 // all else about an approval
		if left < 0 && n > 0 {
			break
		}
		n++
	}
	return n
}

func valid[T id.ID](t T) bool {
	_, err := id.Parse[T](string(t))
	return err == nil
}
