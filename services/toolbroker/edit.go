package toolbroker

import (
	"context"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// checkEdit says what a held call would be with other arguments: what a person would approve, and who. It changes
// nothing, and whoever approves is not bound by it: the call is decided again when they have. An edit that would be
// refused is refused here, while the member who makes it still looks.
func (s *Service) checkEdit(ctx context.Context, who rpc.Caller, q ask.CheckEdit) (ask.CheckedEdit, error) {
	if err := s.view.Current(); err != nil {
		return ask.CheckedEdit{}, err
	}
	args, err := permit.CanonicalArgs(q.Args)
	if err != nil {
		return ask.CheckedEdit{}, err
	}
	state, err := calls.Read(ctx, s.deps.Log, who.Tenant, q.Run, q.Call, q.Requested)
	switch {
	case err != nil:
		return ask.CheckedEdit{}, err
	case state.Requested == nil || state.RequestedSeq != q.Requested || state.Held == nil || state.Settled():
		return ask.CheckedEdit{}, problem.New(problem.Conflict, "the call does not wait for a person any more")
	}
	r := *state.Requested
	earlier := s.approvedEarlier(ctx, who.Tenant, r.Run)
	// The edit is of the arguments; what was answered to the server stays as it is, and is part of what is approved.
	input, err := permit.CanonicalInput(r.Body.Input)
	if err != nil {
		return ask.CheckedEdit{}, err
	}
	d := s.judge(s.knowledge(who.Tenant, r.Agent, r.Tool, args), policy.Request{Run: r.Run, Args: args, Input: input, Tainted: len(r.Taint) > 0, Before: earlier.under, Passed: earlier.forRun})
	if err := earlier.failed(); err != nil {
		return ask.CheckedEdit{}, err
	}
	out := ask.CheckedEdit{Args: args, Digest: d.Digest, Grant: d.GrantID(), Reason: d.Reason}
	switch d.Verdict {
	case policy.Refuse:
		return ask.CheckedEdit{}, problem.New(d.Code, "with these arguments the call would be refused: %s", d.Reason)
	case policy.Admit:
		out.Reason = "the grant asks nobody about the edited arguments; it waits because it was edited"
	}
	out.Quorum, out.Approver, out.FourEyes, _ = d.Rule()
	return out, nil
}
