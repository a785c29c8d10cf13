package environments

import (
	"context"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

func (s *Service) answer() (*rpc.Server, error) {
	return s.deps.Answer(
		rpc.On("environment_define", s.define),
		barrier.Answer(s.view),
	)
}

func (s *Service) define(ctx context.Context, who rpc.Caller, q ask.DefineEnvironment) (ask.Sequence, error) {
	e := q.Environment
	if !member.Role(who.Role).MayConfigure() {
		return ask.Sequence{}, problem.New(problem.Denied, "a %s may not register environments", who.Role)
	}
	if _, err := id.Parse[id.Environment](string(e.Environment)); err != nil {
		return ask.Sequence{}, problem.Wrap(err, problem.Invalid, "environment: %v", err)
	}
	if e.Driver != environment.Host && e.Driver != environment.Docker {
		return ask.Sequence{}, problem.New(problem.Invalid, "driver %.40q is not host or docker", e.Driver)
	}
	seq, err := s.deps.Log.Append(ctx, eventlog.Draft{Event: e, Tenant: who.Tenant, Key: string(e.Environment), Actor: who.Actor})
	return ask.Sequence{Seq: seq}, err
}
