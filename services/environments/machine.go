package environments

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/registry"
)

// askMachine asks the newest connector of an environment, and nobody else. arrived says that the question may have
// reached it, whatever became of the answer. Problems: unavailable when it does not answer, and what it answers itself.
func askMachine[A, Q any](ctx context.Context, s *Service, at registry.Place, verb string, question Q, within time.Duration) (body A, arrived bool, err error) {
	to, ok := s.registry.Connectors.Get(at.Tenant, string(at.Environment))
	if !ok {
		return body, false, problem.New(problem.Unavailable, "no machine was ever connected as environment %s", id.Name(at.Environment))
	}
	raw, err := json.Marshal(question)
	if err != nil {
		return body, false, problem.Wrap(err, problem.Internal, "the order cannot be written")
	}
	if len(raw) > connector.MaxMessage {
		return body, false, problem.New(problem.TooLarge, "an order has at most %d bytes", connector.MaxMessage)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	reply, err := s.deps.Conn.NC.RequestWithContext(ctx, bus.EnvironmentSubject(at.Tenant, at.Environment, to.Instance, verb), raw)
	if err != nil {
		return body, !errors.Is(err, nats.ErrNoResponders), problem.Wrap(err, problem.Unavailable, "the machine of environment %s does not answer", id.Name(at.Environment))
	}
	if len(reply.Data) > 1<<20 {
		return body, true, problem.New(problem.Unavailable, "the machine of environment %s does not answer as it should", id.Name(at.Environment))
	}
	var r connector.Reply[A]
	if err := json.Unmarshal(reply.Data, &r); err != nil {
		return body, true, problem.Wrap(err, problem.Unavailable, "the machine of environment %s does not answer as it should", id.Name(at.Environment))
	}
	if r.Code != "" {
		return body, true, problem.New(problemCode(r.Code), "%s", clip(r.Message))
	}
	return r.Body, true, nil
}
