package environments

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/schemas/call"
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
	}, executor.Kinds()...)
	s.gate.Follow(s.view)
	return s, nil
}

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	questions, err := s.answer()
	if err != nil {
		return err
	}
	defer questions.Close()
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

var _ boot.Service = (*Service)(nil)
