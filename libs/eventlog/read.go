package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
)

// readBatch is how many messages one request asks for.
const readBatch = 256

// Read gives the events that match filter from sequence from on, in stream order, with bodies that are in the blob
// store put back. What cannot be decoded is passed over: it can decide nothing, and the ledger has it.
func (l *Log) Read(ctx context.Context, stream schemas.Stream, filter string, from uint64) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for m, err := range l.messages(ctx, stream, filter, from) {
			if err != nil {
				yield(Stored{}, err)
				return
			}
			s, err := l.stored(ctx, stream, m)
			if errors.Is(err, errUndecodable) {
				continue
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// ReadAt gives the one event at a sequence. Problems: not_found, unavailable.
func (l *Log) ReadAt(ctx context.Context, stream schemas.Stream, seq uint64) (Stored, error) {
	for m, err := range l.batch(ctx, stream, 1, jetstreamext.GetBatchSeq(seq)) {
		if err != nil {
			return Stored{}, err
		}
		if m.Sequence != seq {
			break
		}
		s, err := l.stored(ctx, stream, m)
		if errors.Is(err, errUndecodable) {
			break // it says nothing, as for Read
		}
		return s, err
	}
	return Stored{}, problem.New(problem.NotFound, "no event at %s:%d", stream, seq)
}

var errUndecodable = errors.New("the event cannot be decoded")

func (l *Log) stored(ctx context.Context, stream schemas.Stream, m *jetstream.RawStreamMsg) (Stored, error) {
	envelope, at, err := schemas.ParseEnvelope(m.Subject, m.Data)
	if err != nil {
		return Stored{}, fmt.Errorf("%w: %s:%d: %w", errUndecodable, stream, m.Sequence, err)
	}
	s := Stored{Stream: stream, Seq: m.Sequence, At: at, Envelope: envelope, Raw: m.Data, StoredAt: m.Time}
	if err := l.restoreBody(ctx, &s.Envelope); err != nil {
		return Stored{}, err
	}
	return s, nil
}

// find looks for a message by its deduplication id.
func (l *Log) find(ctx context.Context, stream schemas.Stream, filter string, from uint64, msgID string) (seq uint64, found bool, err error) {
	for m, err := range l.messages(ctx, stream, filter, from) {
		if err != nil {
			return 0, false, err
		}
		if m.Header.Get(bus.HeaderMsgID) == msgID {
			return m.Sequence, true, nil
		}
	}
	return 0, false, nil
}

// messages gives every message that matches, in as many requests as that takes.
func (l *Log) messages(ctx context.Context, stream schemas.Stream, filter string, from uint64) iter.Seq2[*jetstream.RawStreamMsg, error] {
	return func(yield func(*jetstream.RawStreamMsg, error) bool) {
		from = max(from, 1)
		for {
			got := 0
			for m, err := range l.batch(ctx, stream, readBatch, jetstreamext.GetBatchSubject(filter), jetstreamext.GetBatchSeq(from)) {
				if err != nil {
					yield(nil, err)
					return
				}
				if !yield(m, nil) {
					return
				}
				got++
				from = m.Sequence + 1
			}
			if got < readBatch {
				return
			}
		}
	}
}

func (l *Log) batch(ctx context.Context, stream schemas.Stream, n int, opts ...jetstreamext.GetBatchOpt) iter.Seq2[*jetstream.RawStreamMsg, error] {
	return func(yield func(*jetstream.RawStreamMsg, error) bool) {
		unavailable := func(err error) error {
			return problem.Wrap(err, problem.Unavailable, "%s cannot be read now", stream)
		}
		ctx, cancel := context.WithTimeout(ctx, searchTimeout)
		defer cancel()
		messages, err := jetstreamext.GetBatch(ctx, l.conn.JS, string(stream), n, opts...)
		if err != nil {
			yield(nil, unavailable(err))
			return
		}
		for m, err := range messages {
			if errors.Is(err, jetstreamext.ErrNoMessages) {
				return
			}
			if err != nil {
				yield(nil, unavailable(err))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// Message is a message of a stream as it is stored, whatever it holds.
type Message struct {
	Seq      uint64
	Subject  string
	Data     []byte
	StoredAt time.Time
}

// Messages gives at most n messages of a stream from a sequence on, decodable or not.
func (l *Log) Messages(ctx context.Context, stream schemas.Stream, from uint64, n int) ([]Message, error) {
	var out []Message
	for m, err := range l.batch(ctx, stream, n, jetstreamext.GetBatchSubject("ew.v1.>"), jetstreamext.GetBatchSeq(max(from, 1))) {
		if err != nil {
			return nil, err
		}
		out = append(out, Message{m.Sequence, m.Subject, m.Data, m.Time})
	}
	return out, nil
}

// Last gives the last event on a subject. Problems: not_found, unavailable.
func (l *Log) Last(ctx context.Context, stream schemas.Stream, subject string) (Stored, error) {
	m, err := l.lastOn(ctx, string(stream), subject)
	if errors.Is(err, errNothing) {
		return Stored{}, problem.New(problem.NotFound, "no event on %s", subject)
	}
	if err != nil {
		return Stored{}, problem.Wrap(err, problem.Unavailable, "%s cannot be read now", stream)
	}
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return Stored{}, problem.Wrap(err, problem.Internal, "%s answered without a sequence", stream)
	}
	return l.stored(ctx, stream, &jetstream.RawStreamMsg{Subject: m.Header.Get(jetstream.SubjectHeader), Sequence: seq, Data: m.Data})
}

var errNothing = errors.New("no message")

// lastOn reads the last message of a subject directly, by the form of the request that permissions can bind.
func (l *Log) lastOn(ctx context.Context, stream, subject string) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	m, err := l.conn.NC.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream+"."+subject, nil)
	if err != nil {
		return nil, err
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		return m, nil
	case "404":
		return nil, errNothing
	default:
		return nil, fmt.Errorf("status %s %s", status, m.Header.Get("Description"))
	}
}
