package environments

import (
	"context"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
)

// onAdmitted passes every check that a command would, and answers that no machine is attached.
func (s *Service) onAdmitted(ctx context.Context, h bus.Heard) error {
	w, err := s.gate.Take(ctx, h)
	if err != nil || w == nil {
		return err
	}
	return s.gate.Refuse(ctx, w, problem.New(problem.Unavailable, "no environment is attached to this run"))
}
