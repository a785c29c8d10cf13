package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/schemas"
)

// Statuses of answers to direct gets that are not messages.
const (
	statusEnd      = "204" // of a batch: these were all, or as many as were asked for
	statusNotFound = "404"
)

var errNothing = errors.New("no message")

// directGet asks a stream for messages past the consumers. Without Batch it asks for the one at Seq.
type directGet struct {
	Seq    uint64 `json:"seq,omitempty"`
	Filter string `json:"next_by_subj,omitempty"`
	Batch  int    `json:"batch,omitempty"`

	Start *time.Time `json:"start_time,omitempty"` // in place of Seq
}

func (l *Log) getSubject(stream schemas.Stream) string { return "$JS.API.DIRECT.GET." + string(stream) }

// batch hands the messages of one answer to each until that says no, and says how many more match. Silence is an
// error, never the end: whoever took it for the end would act on half of what is stored. The inbox is as large as
// the answer, where nats.go's own for many answers takes half a megabyte each time.
func (l *Log) batch(ctx context.Context, stream schemas.Stream, get directGet, each func(*jetstream.RawStreamMsg) bool) (more uint64, err error) {
	body, err := json.Marshal(get)
	if err != nil {
		return 0, err
	}
	inbox, answers := l.conn.NC.NewInbox(), make(chan *nats.Msg, get.Batch+1)
	sub, err := l.conn.NC.ChanSubscribe(inbox, answers)
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Unsubscribe() }() // a connection that is gone has no subscription
	if err := l.conn.NC.PublishRequest(l.getSubject(stream), inbox, body); err != nil {
		return 0, err
	}
	silence := time.NewTimer(searchTimeout)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-silence.C:
			return 0, context.DeadlineExceeded
		case answer := <-answers:
			if answer.Header.Get("Status") == statusEnd {
				return strconv.ParseUint(answer.Header.Get("Nats-Num-Pending"), 10, 64)
			}
			m, err := rawMessage(answer)
			if errors.Is(err, errNothing) {
				return 0, nil
			}
			if err != nil || !each(m) {
				return 0, err
			}
			silence.Reset(searchTimeout) // each takes its own time
		}
	}
}

// getOne asks for one message: by the body of a request to the stream's subject, or by the form of the subject that
// permissions can bind.
func (l *Log) getOne(ctx context.Context, subject string, body []byte) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	answer, err := l.conn.NC.RequestWithContext(ctx, subject, body)
	if err != nil {
		return nil, err
	}
	return rawMessage(answer)
}

func rawMessage(answer *nats.Msg) (*jetstream.RawStreamMsg, error) {
	switch status := answer.Header.Get("Status"); status {
	case "":
	case statusNotFound:
		return nil, errNothing
	default:
		return nil, fmt.Errorf("status %s %s", status, answer.Header.Get("Description"))
	}
	seq, err := strconv.ParseUint(answer.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("a message without its sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, answer.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return nil, fmt.Errorf("a message without its time: %w", err)
	}
	return &jetstream.RawStreamMsg{Subject: answer.Header.Get(jetstream.SubjectHeader), Sequence: seq, Header: answer.Header, Data: answer.Data, Time: at}, nil
}
