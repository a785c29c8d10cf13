package approvals

import (
	"cmp"
	"context"
	"strconv"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/grantcheck"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/approvals/internal/book"
)

// maxNote is the longest note to a decision, in bytes.
const maxNote = 4 << 10

func (s *Service) answer() (*rpc.Server, error) {
	return s.deps.Answer(append(s.vault.Methods(s.keepsOf, s.secretsOf),
		rpc.On("grant_create", s.createGrant),
		rpc.On("grant_revoke", s.revokeGrant),
		rpc.On("target_define", s.defineTarget),
		rpc.On("target_test", s.testTarget),
		rpc.On("approval_decide", s.decideApproval),
		rpc.On("approval_edit", s.editApproval),
		rpc.On("approval_list", s.listApprovals),
		rpc.On("approval_show", s.showApproval),
		rpc.On("approval_withdraw", s.withdrawApproval),
		barrier.Answer(s.view),
	)...)
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
	by, err := s.decider(who)
	if err != nil {
		return ask.Approval{}, err
	}
	if len(q.Note) > maxNote || !valid[id.Approval](q.Approval) {
		return ask.Approval{}, problem.New(problem.Invalid, "a decision needs an approval's id, and a note of at most %d bytes", maxNote)
	}
	a, err := s.fold(ctx, who.Tenant, q.Approval)
	if err != nil {
		return ask.Approval{}, err
	}
	next, err := a.Decide(q, by, s.now())
	if err != nil {
		return ask.Approval{}, err
	}
	return s.say(ctx, who, a, next)
}

// editApproval puts other arguments in the place of those that wait. The broker is asked first: only it knows what the
// grants say of them, and it computes the digest that it will look for once somebody has decided.
func (s *Service) editApproval(ctx context.Context, who rpc.Caller, q ask.EditApproval) (ask.Approval, error) {
	by, err := s.decider(who)
	if err != nil {
		return ask.Approval{}, err
	}
	if len(q.Note) > maxNote || !valid[id.Approval](q.Approval) {
		return ask.Approval{}, problem.New(problem.Invalid, "an edit needs an approval's id, and a note of at most %d bytes", maxNote)
	}
	a, err := s.fold(ctx, who.Tenant, q.Approval)
	if err != nil {
		return ask.Approval{}, err
	}
	if err := a.MayEdit(q, by, s.now()); err != nil {
		return ask.Approval{}, err
	}
	r := a.Requested
	checked, err := rpc.Ask[ask.CheckedEdit](ctx, s.deps.Conn, schemas.Toolbroker, "edit_check", rpc.Caller{Tenant: who.Tenant, Actor: actor},
		ask.CheckEdit{Run: r.Run, Call: r.Call, Requested: r.Requested, Args: q.Args})
	if err != nil {
		return ask.Approval{}, err
	}
	next, err := a.Edit(q, checked, by)
	if err != nil {
		return ask.Approval{}, err
	}
	return s.say(ctx, who, a, next)
}

// decider is the member who asks to decide. Nobody but a member is one: not an agent, and not a client acting for one.
func (s *Service) decider(who rpc.Caller) (book.Decider, error) {
	by, err := id.Parse[id.Member](who.Actor)
	if err != nil || !member.Role(who.Role).MayApprove() {
		return book.Decider{}, problem.New(problem.Denied, "only a member with role owner, admin or approver decides on approvals")
	}
	role, err := s.standing(who.Tenant, by, member.Role(who.Role))
	if err == nil && !role.MayApprove() {
		err = problem.New(problem.Denied, "a member with role %s does not decide on approvals", role)
	}
	return book.Decider{Member: by, Role: role}, err
}

// folded is an approval as it stands on the stream.
type folded struct {
	book.State
	correlation string // of the run's trace: what is said belongs to it, not to the request that brought it
}

func (s *Service) fold(ctx context.Context, tenant id.Tenant, which id.Approval) (*folded, error) {
	a := &folded{}
	filter := schemas.SubjectOf(tenant, approval.Requested{}.Kind(), string(which), "").Filter()
	for e, err := range s.deps.Log.Read(ctx, schemas.Activity, filter, 1) {
		if err != nil {
			return nil, err
		}
		if ev, err := e.Envelope.Decode(); err == nil {
			a.Apply(e.Seq, ev)
			a.correlation = e.Envelope.Correlation
		}
	}
	s.count(tenant, &a.State)
	return a, nil
}

// say appends what a member decided, if anything, and shows the approval. Of two who write at once, one wins: the other
// decided on something that is not there any more. A crash before it is stored is nothing; a crash after it, before the
// answer, has the member ask again and be answered as the first time.
func (s *Service) say(ctx context.Context, who rpc.Caller, a *folded, next schemas.Event) (ask.Approval, error) {
	if next != nil {
		seq, err := s.deps.Log.AppendAfter(ctx, eventlog.Draft{
			Event: next, Tenant: who.Tenant, Key: string(a.Requested.Approval), Run: a.Requested.Run, Actor: who.Actor, Correlation: a.correlation,
		}, a.Seq)
		if problem.CodeOf(err) == problem.Conflict {
			return ask.Approval{}, problem.Wrap(err, problem.Conflict, "something else was said of it at the same moment; look at it again")
		}
		if err != nil {
			return ask.Approval{}, err
		}
		a.Apply(seq, next)
	}
	return a.Show(s.now()), nil
}

func (s *Service) showApproval(ctx context.Context, who rpc.Caller, q ask.ShowApproval) (ask.Approval, error) {
	if !valid[id.Approval](q.Approval) {
		return ask.Approval{}, problem.New(problem.Invalid, "%.60q is not an approval's id", q.Approval)
	}
	a, err := s.fold(ctx, who.Tenant, q.Approval)
	switch {
	case err != nil:
		return ask.Approval{}, err
	case a.Requested == nil:
		return ask.Approval{}, problem.New(problem.NotFound, "there is no approval %s", q.Approval)
	}
	return a.Show(s.now()), nil
}

// withdrawApproval ends an approval because the agent that asked for its call gave that up. It decides nothing: the broker refuses
// the call, as it does one that nobody approved in time. Another agent's is not there. Problems: not_found, also of one that is
// not open yet.
func (s *Service) withdrawApproval(ctx context.Context, who rpc.Caller, q ask.WithdrawApproval) (ask.Withdrawn, error) {
	if !valid[id.Approval](q.Approval) {
		return ask.Withdrawn{}, problem.New(problem.Invalid, "%.60q is not an approval's id", q.Approval)
	}
	a, err := s.fold(ctx, who.Tenant, q.Approval)
	if err != nil {
		return ask.Withdrawn{}, err
	}
	if a.Requested == nil || string(a.Requested.Agent) != who.Actor {
		return ask.Withdrawn{}, problem.New(problem.NotFound, "there is no approval %s", q.Approval)
	}
	if a.Word(s.now()) == book.Waiting {
		// A crash after it is stored, before the answer, has the client ask again and be answered as the first time.
		if err := s.expire(ctx, book.Due{Tenant: who.Tenant, State: a.State}, approval.Withdrawn); err != nil {
			return ask.Withdrawn{}, err
		}
		if a, err = s.fold(ctx, who.Tenant, q.Approval); err != nil { // who decided at the same moment may have won
			return ask.Withdrawn{}, err
		}
	}
	return ask.Withdrawn{Withdrawn: a.Expired && a.Ended == approval.Withdrawn}, nil
}

func (s *Service) listApprovals(ctx context.Context, who rpc.Caller, q ask.ListApprovals) (ask.Approvals, error) {
	var before uint64
	if q.Before != "" {
		var err error
		if before, err = strconv.ParseUint(q.Before, 10, 63); err != nil || before == 0 {
			return ask.Approvals{}, problem.New(problem.Invalid, "before is what the last page called next")
		}
	}
	if q.Limit < 0 || q.Limit > maxListed {
		return ask.Approvals{}, problem.New(problem.Invalid, "limit %d is outside [0, %d]", q.Limit, maxListed)
	}
	if err := s.refresh(ctx); err != nil {
		return ask.Approvals{}, err
	}
	list := s.book.List(who.Tenant, q.Open, before, s.now())
	page := ask.Approvals{Approvals: []ask.Approval{}}
	for _, row := range list[:fitting(list, cmp.Or(q.Limit, maxListed))] {
		row.Votes = s.counting(who.Tenant, row.Votes, row.Approver)
		page.Approvals = append(page.Approvals, row.Approval)
		page.Next = strconv.FormatUint(row.First, 10)
	}
	if len(page.Approvals) == len(list) {
		page.Next = ""
	}
	return page, nil
}

// Bounds of an answer: arguments are part of each approval, and more than one message carries would be no answer at all.
const (
	maxListed      = 100
	maxListedBytes = 768 << 10
)

// fitting is how many of the first approvals fit into an answer: at least one.
func fitting(list []book.Row, most int) int {
	n, left := 0, maxListedBytes
	for n < min(len(list), most) {
		left -= len(list[n].Body.Args) + len(list[n].Body.Input) + len(list[n].Asked) + 4<<10 // all else about an approval
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
