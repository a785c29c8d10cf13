package runtime

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
)

// hearEnds ends the worker that is kept for a run as the run ends, until ctx does. It hears that as it is published,
// which may be missed: the worker then idles, and ends by that.
func (s *Service) hearEnds(ctx context.Context) error {
	for _, subject := range bus.RunEndedSubjects {
		sub, err := s.deps.Conn.NC.Subscribe(subject, func(m *nats.Msg) {
			if at, err := schemas.ParseSubject(m.Subject); err == nil {
				s.pool.RunEnded(string(at.Tenant), at.Key)
			}
		})
		if err != nil {
			return problem.Wrap(err, problem.Unavailable, "the bus does not say which runs end")
		}
		defer func() { _ = sub.Unsubscribe() }() // a connection that is gone has no subscription
	}
	<-ctx.Done()
	return nil
}
