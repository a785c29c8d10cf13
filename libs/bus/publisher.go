package bus

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/problem"
)

// Publisher is Watermill's Publisher over a stream. The topic is the subject, the message's UUID its deduplication
// id. It returns when the stream has acknowledged every message.
type Publisher struct {
	conn    *Conn
	timeout time.Duration // for the acknowledgement of one message
}

// NewPublisher makes a publisher on a connection, which stays the caller's.
func NewPublisher(conn *Conn) *Publisher { return &Publisher{conn: conn, timeout: 5 * time.Second} }

// Publish implements message.Publisher.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := p.publish(topic, m); err != nil {
			return err
		}
	}
	return nil
}

func (p *Publisher) publish(subject string, m *message.Message) error {
	ctx, cancel := context.WithTimeout(m.Context(), p.timeout)
	defer cancel()
	ctx, forget := p.conn.Guard(ctx, subject)
	defer forget()

	header := make(nats.Header, len(m.Metadata)+2)
	for k, v := range m.Metadata {
		header.Set(k, v)
	}
	Inject(ctx, header)
	out := &nats.Msg{Subject: subject, Data: m.Payload, Header: header}
	if _, err := p.conn.JS.PublishMsg(ctx, out, jetstream.WithMsgID(m.UUID)); err != nil {
		return PublishError(ctx, err)
	}
	return nil
}

// Close implements message.Publisher. The connection is not ours to close.
func (p *Publisher) Close() error { return nil }

// PublishError names what a failed publish means: a denial by its own code, all else unavailable.
func PublishError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); problem.CodeOf(cause) == problem.BusDenied {
		return cause
	}
	return problem.Wrap(err, problem.Unavailable, "the bus did not confirm the message")
}
