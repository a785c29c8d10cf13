package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// How long an append waits for the stream, and then looks for what it may have stored.
const (
	appendTimeout = 2 * time.Second
	searchTimeout = 2 * time.Second
)

// Server error codes of an expected sequence that is not the last one, on one replica and on several.
const (
	wrongLastSequence     jetstream.ErrorCode = 10071
	wrongLastSequenceRaft jetstream.ErrorCode = 10164
)

// Log appends events as one source and reads the streams.
type Log struct {
	conn   *bus.Conn
	source string
	now    func() time.Time
}

// New makes a log on a connection, which stays the caller's.
func New(conn *bus.Conn) *Log {
	return &Log{conn: conn, source: "/" + conn.User() + "/" + conn.Instance(), now: time.Now}
}

// Draft is an event before it is written.
type Draft struct {
	Event  schemas.Event
	Tenant id.Tenant
	Key    string // the aggregate's id; for calls the run's
	Route  call.Route
	Actor  string // who caused it: an id of a member or agent, or "service:<name>"

	// Apart has the body kept in the blob store whatever its size, so that who reads many events is spared it.
	Apart bool

	ID          id.Event // default: a fresh one. Whoever may have to say it again derives it.
	Run         id.Run
	Causation   id.Event
	Correlation string // default: the trace id
}

// Stored is an event in its stream.
type Stored struct {
	Stream   schemas.Stream
	Seq      uint64
	At       schemas.Subject
	Envelope schemas.Envelope
	Raw      []byte
	StoredAt time.Time
}

// Append stores an event of an aggregate that is not kept in order. Problems: invalid, audit_unavailable (certainly
// not stored), pending (not known whether it is), bus_denied.
func (l *Log) Append(ctx context.Context, d Draft) (seq uint64, err error) {
	seq, _, err = l.AppendFirst(ctx, d)
	return seq, err
}

// AppendFirst is Append, and says whether it was this append that stored the event: no earlier one under its id did.
func (l *Log) AppendFirst(ctx context.Context, d Draft) (seq uint64, first bool, err error) {
	if schemas.EntryOf(d.Event).Ordered {
		panic("eventlog: " + d.Event.Kind() + " is ordered; use AppendAfter")
	}
	return l.append(ctx, d, nil)
}

// AppendAfter stores an event if the aggregate's last event still has sequence after; zero means that there is none.
// The aggregate is what the catalogue's entry says: the thing, or all things of the noun in the tenant.
// Problems: as Append, and conflict when the aggregate has moved on.
func (l *Log) AppendAfter(ctx context.Context, d Draft, after uint64) (seq uint64, err error) {
	if !schemas.EntryOf(d.Event).Ordered {
		panic("eventlog: " + d.Event.Kind() + " is not ordered; use Append")
	}
	seq, _, err = l.append(ctx, d, &after)
	return seq, err
}

// append says too whether it is certain that nothing was stored under the event's id before.
func (l *Log) append(ctx context.Context, d Draft, after *uint64) (seq uint64, first bool, err error) {
	entry := schemas.EntryOf(d.Event)
	at := schemas.SubjectOf(d.Tenant, entry.Kind, d.Key, d.Route)
	if _, err := schemas.ParseSubject(at.String()); err != nil {
		return 0, false, problem.Wrap(err, problem.Invalid, "the event has no valid subject")
	}
	raw, eventID, err := l.write(ctx, entry, at, d)
	if err != nil {
		return 0, false, err
	}
	msg := &nats.Msg{Subject: at.String(), Data: raw, Header: nats.Header{}}
	msg.Header.Set(bus.HeaderType, schemas.TypeOf(entry))
	bus.Inject(ctx, msg.Header)

	msgID := messageID(d.Tenant, eventID)
	opts := []jetstream.PublishOpt{jetstream.WithMsgID(msgID), jetstream.WithExpectStream(string(entry.Stream))}
	if after != nil {
		opts = append(opts, jetstream.WithExpectLastSequenceForSubject(*after, entry.Filter(at)))
	}
	publish, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	publish, forget := l.conn.Guard(publish, msg.Subject)
	defer forget()
	ack, err := l.conn.JS.PublishMsg(publish, msg, opts...)
	if err == nil {
		return ack.Sequence, !ack.Duplicate, nil
	}

	var refused *jetstream.APIError
	switch {
	case problem.CodeOf(context.Cause(publish)) == problem.BusDenied:
		return 0, false, context.Cause(publish)
	case errors.As(err, &refused) && stale(refused.ErrorCode):
		// Also the answer to a retry of what is already stored, since the expectation is checked before the id.
		if seq, found, searchErr := l.find(ctx, entry.Stream, entry.Filter(at), *after+1, msgID); searchErr != nil {
			return 0, false, problem.Wrap(searchErr, problem.Pending, "it is not known yet whether %s was recorded", entry.Kind)
		} else if found {
			return seq, false, nil
		}
		return 0, false, problem.Wrap(err, problem.Conflict, "%s moved on", at.Noun)
	case errors.As(err, &refused) && refused.Code != 408:
		return 0, false, problem.Wrap(err, problem.AuditUnavailable, "the record refused %s, so nothing was done", entry.Kind)
	}
	seq, err = l.resolve(ctx, entry, at, after, msgID, err)
	return seq, false, err
}

// resolve finds out what became of a publish that got no answer.
func (l *Log) resolve(ctx context.Context, entry schemas.Entry, at schemas.Subject, after *uint64, msgID string, cause error) (uint64, error) {
	search, cancel := context.WithTimeout(context.WithoutCancel(ctx), searchTimeout)
	defer cancel()
	filter, from := at.String(), uint64(1)
	if after != nil {
		filter, from = entry.Filter(at), *after+1
	}
	seq, found, err := l.find(search, entry.Stream, filter, from, msgID)
	switch {
	case err != nil:
		return 0, problem.Wrap(errors.Join(cause, err), problem.Pending, "it is not known yet whether %s was recorded", entry.Kind)
	case found:
		return seq, nil
	}
	return 0, problem.Wrap(cause, problem.AuditUnavailable, "%s could not be recorded, so nothing was done", entry.Kind)
}

func stale(code jetstream.ErrorCode) bool {
	return code == wrongLastSequence || code == wrongLastSequenceRaft
}

func messageID(tenant id.Tenant, event id.Event) string { return string(tenant) + ":" + string(event) }

// write makes the bytes of the event, once.
func (l *Log) write(ctx context.Context, entry schemas.Entry, at schemas.Subject, d Draft) ([]byte, id.Event, error) {
	if d.ID == "" {
		d.ID = id.New[id.Event]()
	}
	if d.Correlation == "" {
		if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() {
			d.Correlation = sc.TraceID().String()
		}
	}
	data, err := json.Marshal(d.Event)
	if err != nil {
		return nil, "", problem.Wrap(err, problem.Invalid, "the data of %s cannot be written", entry.Kind)
	}
	e := schemas.Envelope{
		SpecVersion: "1.0", ID: d.ID, Source: l.source, Type: schemas.TypeOf(entry), Subject: at.Noun + "/" + at.Key,
		Time: l.now().UTC().Truncate(time.Microsecond), ContentType: "application/json",
		Tenant: d.Tenant, Actor: d.Actor, Run: d.Run, Causation: d.Causation, Correlation: d.Correlation, Data: data,
	}
	if len(data) > maxInline || d.Apart {
		if err := l.moveBody(ctx, &e); err != nil {
			return nil, "", err
		}
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return nil, "", problem.Wrap(err, problem.Invalid, "%s cannot be written", entry.Kind)
	}
	if len(raw) > schemas.MaxEnvelope {
		return nil, "", problem.New(problem.TooLarge, "%s is %d bytes, over %d", entry.Kind, len(raw), schemas.MaxEnvelope)
	}
	return raw, d.ID, nil
}

// Decode gives the event as T. It is an error when it is of another kind.
func Decode[T schemas.Event](s Stored) (T, error) {
	var zero T
	ev, err := s.Envelope.Decode()
	if err != nil {
		return zero, err
	}
	t, ok := ev.(T)
	if !ok {
		return zero, fmt.Errorf("the event at %s:%d is a %s, not a %s", s.Stream, s.Seq, ev.Kind(), zero.Kind())
	}
	return t, nil
}
