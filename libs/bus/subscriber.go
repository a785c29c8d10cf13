package bus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"
)

// SubscriberConfig says how a Subscriber finds and shares out messages.
type SubscriberConfig struct {
	// Open finds the consumer of a topic.
	Open func(ctx context.Context, topic string) (jetstream.Consumer, error)
	// Lane names the order that a message belongs to: messages of one lane are handled one after the other.
	// Default: the whole subscription is one lane.
	Lane func(m jetstream.Msg) string
	// Tenant names who a message is for. Default: everybody is one tenant.
	Tenant func(subject string) string
	// PerTenant is how many lanes of one tenant run at once, by topic. Default 64.
	PerTenant func(topic string) int
	// AckWait is the consumer's; a third of it is the heartbeat. Default 3 s.
	AckWait time.Duration
	// MaxInFlight is the consumer's MaxAckPending: the bound on what waits here. Default 1,024.
	MaxInFlight int
	// RetryDelay is how long a message that was handed back waits, by the number of its deliveries so far. Default:
	// doubling from 100 ms to 10 s.
	RetryDelay func(deliveries uint64) time.Duration
	// CloseTimeout is how long closing waits for handlers. Default 10 s.
	CloseTimeout time.Duration
}

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	one := func(string) string { return "" }
	if c.Lane == nil {
		c.Lane = func(jetstream.Msg) string { return "" }
	}
	if c.Tenant == nil {
		c.Tenant = one
	}
	if c.PerTenant == nil {
		c.PerTenant = func(string) int { return 64 }
	}
	if c.AckWait == 0 {
		c.AckWait = 3 * time.Second
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 1024
	}
	if c.RetryDelay == nil {
		c.RetryDelay = func(deliveries uint64) time.Duration {
			return min(100*time.Millisecond<<min(deliveries-1, 7), 10*time.Second)
		}
	}
	if c.CloseTimeout == 0 {
		c.CloseTimeout = 10 * time.Second
	}
	return c
}

// Subscriber is Watermill's Subscriber over durable pull consumers.
type Subscriber struct {
	cfg SubscriberConfig
	log *slog.Logger

	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	running sync.WaitGroup
}

// ErrClosed is returned by Subscribe after Close.
var ErrClosed = errors.New("bus: the subscriber is closed")

// NewSubscriber makes a subscriber. Connections behind cfg.Open stay the caller's.
func NewSubscriber(cfg SubscriberConfig, log *slog.Logger) *Subscriber {
	return &Subscriber{cfg: cfg.withDefaults(), log: log, closing: make(chan struct{})}
}

// Subscribe implements message.Subscriber. The channel is closed when ctx ends or the subscriber is closed, after
// the handlers that run have had CloseTimeout to finish.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	open := func() (jetstream.MessagesContext, error) { return s.open(ctx, topic) }
	iter, err := open()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		iter.Stop()
		return nil, ErrClosed
	}
	sub := newSubscription(ctx, s.cfg, s.cfg.PerTenant(topic), iter, open, s.log.With("topic", topic))
	s.running.Go(func() { sub.run(s.closing) })
	return sub.out, nil
}

func (s *Subscriber) open(ctx context.Context, topic string) (jetstream.MessagesContext, error) {
	consumer, err := s.cfg.Open(ctx, topic)
	if err != nil {
		return nil, err
	}
	// A pull's answer that overtakes nats.go's own bookkeeping loses the next pull and stalls the iterator until two
	// heartbeats are missed; asking for more than can be outstanding makes that rare, short expiry makes it brief.
	return consumer.Messages(
		jetstream.PullMaxMessages(s.cfg.MaxInFlight+256),
		jetstream.PullExpiry(4*time.Second),
		jetstream.PullHeartbeat(time.Second),
		jetstream.WithMessagesErrOnMissingHeartbeat(false),
	)
}

// Close implements message.Subscriber.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}
