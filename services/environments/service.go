package environments

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Config is the service's own settings: none yet.
type Config struct{}

// Service is the environment registry.
type Service struct {
	deps boot.Deps
	log  *slog.Logger
	view *eventlog.View
	gate *executor.Gate
}

// New makes the service.
func New(_ Config, deps boot.Deps) (*Service, error) {
	s := &Service{deps: deps, log: deps.Logger}
	s.gate = executor.New(call.Exec, deps.Conn, deps.Log, deps.Root)
	s.view = deps.View(func(e eventlog.Stored) {
		if err := s.gate.Apply(e); err != nil {
			s.log.Error("key not trusted", "seq", e.Seq, "err", err)
		}
	})
	s.gate.Follow(s.view)
	return s, nil
}

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	questions, err := rpc.NewServer(s.deps.Conn, s.deps.Service, s.deps.Version, s.log)
	if err != nil {
		return err
	}
	defer questions.Close()
	if err := rpc.Handle(questions, "environment_define", s.define); err != nil {
		return err
	}
	router, err := s.deps.Router()
	if err != nil {
		return err
	}
	router.Hear("environments_admitted", s.onAdmitted)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	return group.Wait()
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

// onAdmitted passes every check that a command would, and answers that no machine is attached.
func (s *Service) onAdmitted(ctx context.Context, h bus.Heard) error {
	w, err := s.gate.Accept(ctx, h)
	switch {
	case err != nil && (w == nil || executor.Later(err)):
		return err
	case err != nil:
		return s.gate.Refuse(ctx, w, err)
	case w == nil:
		return nil
	}
	return s.gate.Refuse(ctx, w, problem.New(problem.Unavailable, "no environment is attached to this run"))
}

var _ boot.Service = (*Service)(nil)
