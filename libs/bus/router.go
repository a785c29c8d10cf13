package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
)

// Heard is an event as a handler hears it. Event is nil when the kind is newer than this program.
type Heard struct {
	Delivery
	At       schemas.Subject
	Envelope schemas.Envelope
	Event    schemas.Event
}

// Again says that the message was delivered before, so that its consequences may already be stored.
func (h Heard) Again() bool { return h.Deliveries > 1 }

// Handler decides what a heard event leads to. An error hands the message back, to be tried again without limit:
// only what cannot be decoded is ever put aside, by the router or by an error that Undecodable made.
type Handler func(ctx context.Context, h Heard) error

// undecodable marks the error of a handler that found no sense in an event.
type undecodable struct{ error }

func (u undecodable) Unwrap() error { return u.error }

// Undecodable makes an error that puts the message aside: no later try can make sense of it.
func Undecodable(reason error) error { return undecodable{reason} }

// Router runs a service's handlers.
type Router struct {
	conn    *Conn
	service schemas.Service
	log     *slog.Logger
	wm      *message.Router
	sub     *Subscriber
	pub     *Publisher
	handled *prometheus.HistogramVec
	// Undecodable is told of a message that was put aside, so that whoever waits for it can be answered.
	Undecodable func(ctx context.Context, at schemas.Subject, raw []byte, reason error) error
}

// NewRouter makes a router of a service on its connection, which stays the caller's.
func NewRouter(conn *Conn, service schemas.Service, log *slog.Logger, metrics prometheus.Registerer) (*Router, error) {
	wm, err := message.NewRouter(message.RouterConfig{CloseTimeout: 15 * time.Second}, watermill.NewSlogLogger(quiet(log)))
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	r := &Router{conn: conn, service: service, log: log, wm: wm, pub: NewPublisher(conn)}
	r.sub = NewSubscriber(SubscriberConfig{
		Open: func(ctx context.Context, durable string) (jetstream.Consumer, error) {
			h := schemas.FindHearing(durable)
			c, err := conn.JS.Consumer(ctx, string(h.Stream), h.Name)
			if err != nil {
				return nil, problem.Wrap(err, problem.Unavailable, "durable %s on %s; is the bus provisioned?", h.Name, h.Stream)
			}
			return c, nil
		},
		Lane:   lane,
		Tenant: func(subject string) string { return token(subject, 2) },
		PerTenant: func(durable string) int {
			if schemas.FindHearing(durable).Apart {
				return 256 // they wait for providers and scripts, each of which has bounds of its own
			}
			return 64
		},
		AckWait: AckWait, MaxInFlight: MaxAckPending,
	}, log)
	r.handled = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "execwarden_event_handle_seconds", Help: "Time to handle one event, by durable and result.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
	}, []string{"durable", "result"})
	if err := metrics.Register(r.handled); err != nil {
		var already prometheus.AlreadyRegisteredError
		if !errors.As(err, &already) {
			return nil, fmt.Errorf("router metrics: %w", err)
		}
		r.handled = already.ExistingCollector.(*prometheus.HistogramVec)
	}
	wm.AddMiddleware(middleware.Recoverer)
	return r, nil
}

// Hear runs h for each event that the durable brings.
func (r *Router) Hear(durable string, h Handler) {
	hearing := schemas.FindHearing(durable)
	if hearing.Service != r.service {
		panic("bus: " + string(r.service) + " does not own durable " + durable)
	}
	r.wm.AddConsumerHandler(durable, durable, r.sub, func(m *message.Message) error {
		return r.hear(m, durable, h)
	})
}

// Run handles events until ctx ends and every running handler has returned.
func (r *Router) Run(ctx context.Context) error {
	err := r.wm.Run(ctx)
	err = errors.Join(err, r.sub.Close())
	if err != nil && ctx.Err() == nil { // an end in the middle of the start is an end like any other
		return fmt.Errorf("router: %w", err)
	}
	return nil
}

func (r *Router) hear(m *message.Message, durable string, handle Handler) (err error) {
	began := time.Now()
	d := DeliveryOf(m.Context())
	envelope, at, err := schemas.ParseEnvelope(d.Subject, m.Payload)
	ctx, span := startSpan(m.Context(), durable, d, envelope)
	defer func() {
		result := "ok"
		if err != nil {
			result = string(problem.CodeOf(err))
			span.SetStatus(codes.Error, result)
			r.log.WarnContext(ctx, "event not handled yet", "durable", durable, "subject", d.Subject, "seq", d.Seq,
				"deliveries", d.Deliveries, "err", err)
		}
		r.handled.WithLabelValues(durable, result).Observe(time.Since(began).Seconds())
		span.End()
	}()

	if err != nil {
		return r.putAside(ctx, durable, at, m, err)
	}
	event, err := envelope.Decode()
	if errors.Is(err, schemas.ErrUnknownKind) {
		return nil // from a newer program; the ledger keeps it
	}
	if err != nil {
		return r.putAside(ctx, durable, at, m, err)
	}
	err = handle(ctx, Heard{Delivery: d, At: at, Envelope: envelope, Event: event})
	var senseless undecodable
	if errors.As(err, &senseless) {
		return r.putAside(ctx, durable, at, m, senseless.error)
	}
	return err
}

// putAside stores what cannot be decoded with the reason. Storing comes before acknowledging: a crash between the
// two stores it once more under the same id, which deduplicates.
func (r *Router) putAside(ctx context.Context, durable string, at schemas.Subject, m *message.Message, reason error) error {
	d := DeliveryOf(ctx)
	r.log.ErrorContext(ctx, "event cannot be decoded", "durable", durable, "subject", d.Subject, "seq", d.Seq, "err", reason)
	dead := message.NewMessageWithContext(ctx, fmt.Sprintf("dlq:%s:%d", durable, d.Seq), m.Payload)
	dead.Metadata["ew-subject"] = d.Subject
	dead.Metadata["ew-sequence"] = fmt.Sprintf("%s:%d", d.Stream, d.Seq)
	dead.Metadata["ew-reason"] = headerSafe(reason.Error())
	if err := r.pub.Publish(DeadLetterSubject(string(r.service), durable), dead); err != nil {
		return err
	}
	if r.Undecodable != nil {
		return r.Undecodable(ctx, at, m.Payload, reason)
	}
	return nil
}

func headerSafe(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
	return s[:min(len(s), 300)]
}

// lane is the order that a message belongs to: its aggregate, unless its durable hears messages apart.
func lane(m jetstream.Msg) string {
	meta, err := m.Metadata()
	if err == nil && schemas.FindHearing(meta.Consumer).Apart {
		return m.Reply() // no other message has it
	}
	return token(m.Subject(), 4)
}

// token is the n-th token of a subject, "" when there is none.
func token(subject string, n int) string {
	for range n {
		i := strings.IndexByte(subject, '.')
		if i < 0 {
			return ""
		}
		subject = subject[i+1:]
	}
	first, _, _ := strings.Cut(subject, ".")
	return first
}

// quiet keeps Watermill's own narration out of the service's log below warnings.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(levelFloor{log.Handler(), slog.LevelWarn})
}

type levelFloor struct {
	slog.Handler
	floor slog.Level
}

func (h levelFloor) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.floor && h.Handler.Enabled(ctx, l)
}

// Handle passes over what was said before, in our own words and with the event's place.
func (h levelFloor) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "Handler returned error" {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h levelFloor) WithAttrs(a []slog.Attr) slog.Handler {
	return levelFloor{h.Handler.WithAttrs(a), h.floor}
}

func (h levelFloor) WithGroup(name string) slog.Handler {
	return levelFloor{h.Handler.WithGroup(name), h.floor}
}
