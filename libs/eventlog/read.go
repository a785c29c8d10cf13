package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
)

// readBatch is how many messages one request asks for.
const readBatch = 256

// Read gives the events that match filter from sequence from on, in stream order, with bodies that are in the blob
// store put back. What cannot be decoded is passed over: it can decide nothing, and the ledger has it.
func (l *Log) Read(ctx context.Context, stream schemas.Stream, filter string, from uint64) iter.Seq2[Stored, error] {
	return l.read(ctx, stream, directGet{Seq: max(from, 1), Filter: filter}, true)
}

// ReadApart is Read without the bodies that are in the blob store: Restored gives the ones that are wanted.
func (l *Log) ReadApart(ctx context.Context, stream schemas.Stream, filter string, from uint64) iter.Seq2[Stored, error] {
	return l.read(ctx, stream, directGet{Seq: max(from, 1), Filter: filter}, false)
}

// ReadSince is Read from the first event that was stored at or after a time.
func (l *Log) ReadSince(ctx context.Context, stream schemas.Stream, filter string, since time.Time) iter.Seq2[Stored, error] {
	return l.read(ctx, stream, directGet{Start: &since, Filter: filter}, true)
}

func (l *Log) read(ctx context.Context, stream schemas.Stream, first directGet, whole bool) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		for m, err := range l.messages(ctx, stream, first) {
			if err != nil {
				yield(Stored{}, err)
				return
			}
			s, err := l.stored(ctx, stream, m, whole)
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
	body, err := json.Marshal(directGet{Seq: seq})
	if err != nil {
		return Stored{}, err
	}
	m, err := l.getOne(ctx, l.getSubject(stream), body)
	if errors.Is(err, errNothing) {
		return Stored{}, problem.New(problem.NotFound, "no event at %s:%d", stream, seq)
	}
	if err != nil {
		return Stored{}, unreadable(err, stream)
	}
	return l.stored(ctx, stream, m, true)
}

func unreadable(err error, stream schemas.Stream) error {
	return problem.Wrap(err, problem.Unavailable, "%s cannot be read now", stream)
}

var errUndecodable = errors.New("the event cannot be decoded")

func (l *Log) stored(ctx context.Context, stream schemas.Stream, m *jetstream.RawStreamMsg, whole bool) (Stored, error) {
	envelope, at, err := schemas.ParseEnvelope(m.Subject, m.Data)
	if err != nil {
		return Stored{}, fmt.Errorf("%w: %s:%d: %w", errUndecodable, stream, m.Sequence, err)
	}
	s := Stored{Stream: stream, Seq: m.Sequence, At: at, Envelope: envelope, Raw: m.Data, StoredAt: m.Time}
	if whole {
		if err := l.restoreBody(ctx, &s.Envelope); err != nil {
			return Stored{}, err
		}
	}
	return s, nil
}

// find looks for a message by its deduplication id.
func (l *Log) find(ctx context.Context, stream schemas.Stream, filter string, from uint64, msgID string) (seq uint64, found bool, err error) {
	for m, err := range l.messages(ctx, stream, directGet{Seq: max(from, 1), Filter: filter}) {
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
func (l *Log) messages(ctx context.Context, stream schemas.Stream, get directGet) iter.Seq2[*jetstream.RawStreamMsg, error] {
	return func(yield func(*jetstream.RawStreamMsg, error) bool) {
		get.Batch = readBatch
		for more, wanted := uint64(1), true; more > 0 && wanted; {
			var err error
			more, err = l.batch(ctx, stream, get, func(m *jetstream.RawStreamMsg) bool {
				get.Seq, get.Start = m.Sequence+1, nil
				wanted = yield(m, nil)
				return wanted
			})
			if err != nil {
				yield(nil, unreadable(err, stream))
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
	_, err := l.batch(ctx, stream, directGet{Seq: max(from, 1), Filter: "ew.v1.>", Batch: n}, func(m *jetstream.RawStreamMsg) bool {
		out = append(out, Message{m.Sequence, m.Subject, m.Data, m.Time})
		return true
	})
	if err != nil {
		return nil, unreadable(err, stream)
	}
	return out, nil
}

// Last gives the last event on a subject. Problems: not_found, unavailable.
func (l *Log) Last(ctx context.Context, stream schemas.Stream, subject string) (Stored, error) {
	m, err := l.getOne(ctx, l.getSubject(stream)+"."+subject, nil)
	if errors.Is(err, errNothing) {
		return Stored{}, problem.New(problem.NotFound, "no event on %s", subject)
	}
	if err != nil {
		return Stored{}, unreadable(err, stream)
	}
	return l.stored(ctx, stream, m, true)
}
