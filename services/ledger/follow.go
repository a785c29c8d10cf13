package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/ledger/internal/store"
)

// How the streams are read.
const (
	batchSize = 1000
	idlePoll  = time.Second // when no news came; a lost wake-up costs this much
	maxPause  = 10 * time.Second
)

// follow records a stream from where the database stands. There is one way in, whether the database is current, a
// week behind or empty.
func (s *Service) follow(ctx context.Context, stream schemas.Stream) error {
	wake, stop, err := s.listen()
	if err != nil {
		return err
	}
	defer stop()
	wait := 100 * time.Millisecond
	for ctx.Err() == nil {
		n, err := s.record(ctx, stream)
		var gap *store.GapError
		var remade *store.IncarnationError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &gap), errors.As(err, &remade):
			// An operator has to decide: going on would pretend that nothing is missing.
			s.log.Error("the ledger does not skip what is missing", "stream", stream, "err", err)
			pause(ctx, maxPause)
		case err != nil:
			s.log.Warn("not recorded yet", "stream", stream, "err", err)
			pause(ctx, wait)
			wait = min(2*wait, maxPause)
		case n < batchSize:
			wait = 100 * time.Millisecond
			select {
			case <-wake:
			case <-time.After(idlePoll):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// listen wakes the reader when anything is published on the event subjects. Whether it was stored, and where, only the
// stream knows.
func (s *Service) listen() (<-chan struct{}, func(), error) {
	wake := make(chan struct{}, 1)
	sub, err := s.deps.Conn.NC.Subscribe("ew.v1.>", func(*nats.Msg) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, nil, problem.Wrap(err, problem.Unavailable, "the ledger cannot listen for news")
	}
	return wake, func() { _ = sub.Unsubscribe() }, nil // a connection that is gone has no subscription
}

// record takes in the next batch of a stream.
func (s *Service) record(ctx context.Context, stream schemas.Stream) (int, error) {
	info, err := s.deps.Conn.JS.Stream(ctx, string(stream))
	if err != nil {
		return 0, problem.Wrap(err, problem.Unavailable, "%s does not answer", stream)
	}
	cursor, err := s.store.Cursor(ctx, string(stream))
	if err != nil {
		return 0, err
	}
	messages, err := s.deps.Log.Messages(ctx, stream, cursor.Last+1, batchSize)
	if err != nil || len(messages) == 0 {
		return 0, err
	}
	incarnation := info.CachedInfo().Created.UTC().Format(time.RFC3339Nano)
	batch := make([]store.Record, 0, len(messages))
	tenants, correlations := map[string]bool{}, map[string]id.Event{}
	for _, m := range messages {
		meta, correlation := decode(m.Subject, m.Data)
		r := store.Record{Stream: string(stream), Incarnation: incarnation, Seq: m.Seq, Tenant: tenantOf(m.Subject),
			Subject: m.Subject, Raw: m.Data, StoredAt: m.StoredAt, Meta: meta}
		correlations[correlation] = id.Event(meta.EventID)
		batch = append(batch, r)
		tenants[r.Tenant] = true
	}
	ctx, span := otel.Tracer("execwarden/ledger").Start(ctx, "record "+string(stream), trace.WithLinks(traces(correlations)...),
		trace.WithAttributes(attribute.Int("execwarden.events", len(batch))))
	defer span.End()
	if err := s.store.Ingest(ctx, batch); err != nil {
		span.SetStatus(codes.Error, string(problem.CodeOf(err)))
		return 0, err
	}
	// A crash here loses only the news, not the record.
	last := batch[len(batch)-1]
	s.metrics.events.WithLabelValues(string(stream)).Add(float64(len(batch)))
	s.metrics.lag.WithLabelValues(string(stream)).Set(time.Since(last.StoredAt).Seconds())
	for t := range tenants {
		_ = s.deps.Conn.NC.Publish(bus.LiveSubject(t+".ledger"), nil) // a tail that misses it polls
	}
	return len(batch), nil
}

// maxLinks bounds the traces that one batch's span names.
const maxLinks = 64

// traces links a batch to the traces that its events belong to: a batch has no one parent.
func traces(correlations map[string]id.Event) (links []trace.Link) {
	for c, event := range correlations {
		if home, ok := bus.Correlated(c, event); ok && len(links) < maxLinks {
			links = append(links, trace.Link{SpanContext: home})
		}
	}
	return links
}

// nobody is the tenant of what stands on a subject without one.
const nobody = "tnt_nobody"

func tenantOf(subject string) string {
	at, err := schemas.ParseSubject(subject)
	if err != nil {
		return nobody
	}
	return string(at.Tenant)
}
