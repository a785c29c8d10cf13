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

// subscription shares the messages of one consumer out over lanes.
type subscription struct {
	cfg  SubscriberConfig
	most int // lanes of one tenant at once
	log  *slog.Logger
	open func() (jetstream.MessagesContext, error)
	out  chan *message.Message

	ctx    context.Context // ends when no further message may start
	cancel context.CancelFunc
	grace  context.Context // ends when running handlers are no longer waited for
	lanes  sync.WaitGroup

	mu       sync.Mutex
	iter     jetstream.MessagesContext
	queues   map[string][]jetstream.Msg // by lane; present while the lane's goroutine lives
	tenants  map[string]chan struct{}   // slots, by tenant
	inFlight map[jetstream.Msg]struct{} // everything fetched and not yet settled: what the heartbeat keeps
}

func newSubscription(ctx context.Context, cfg SubscriberConfig, most int, iter jetstream.MessagesContext, open func() (jetstream.MessagesContext, error), log *slog.Logger) *subscription {
	ctx, cancel := context.WithCancel(ctx)
	return &subscription{
		cfg: cfg, most: most, log: log, iter: iter, open: open, ctx: ctx, cancel: cancel,
		out:    make(chan *message.Message),
		queues: map[string][]jetstream.Msg{}, tenants: map[string]chan struct{}{},
		inFlight: map[jetstream.Msg]struct{}{},
	}
}

// run owns every goroutine of the subscription and returns when all have ended.
func (s *subscription) run(closing <-chan struct{}) {
	defer close(s.out)
	grace, endGrace := context.WithCancel(context.WithoutCancel(s.ctx))
	defer endGrace()
	s.grace = grace

	beats := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() { s.heartbeat(beats) })

	var fetching sync.WaitGroup
	fetching.Go(s.fetch)
	select {
	case <-closing:
	case <-s.ctx.Done():
	}
	s.cancel()
	s.current().Drain() // Stop would hold what is prefetched until AckWait; drained messages are handed back at once
	fetching.Wait()
	timer := time.AfterFunc(s.cfg.CloseTimeout, endGrace)
	s.lanes.Wait()
	timer.Stop()
	close(beats)
	beating.Wait()
}

func (s *subscription) current() jetstream.MessagesContext {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.iter
}

func (s *subscription) fetch() {
	for {
		m, err := s.current().Next()
		switch {
		case err == nil:
			s.accept(m)
			continue
		case errors.Is(err, jetstream.ErrMsgIteratorClosed) && !s.reopen():
			return
		case s.ctx.Err() == nil:
			s.log.Warn("pull", "err", err)
		}
		s.pause() // the iterator pulls again by itself; do not spin on an error that stays
	}
}

// reopen replaces an iterator that ended although nobody asked it to, such as after its consumer was made anew. It
// says false when the subscription is closing.
func (s *subscription) reopen() bool {
	for s.ctx.Err() == nil {
		iter, err := s.open()
		if err != nil {
			s.log.Warn("open", "err", err)
			s.pause()
			continue
		}
		s.mu.Lock()
		s.iter = iter
		s.mu.Unlock()
		if s.ctx.Err() != nil { // closing has drained the one before
			iter.Drain()
		}
		return true
	}
	return false
}

func (s *subscription) pause() {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-s.ctx.Done():
	}
}

func (s *subscription) accept(m jetstream.Msg) {
	lane := s.cfg.Lane(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight[m] = struct{}{}
	queue, runs := s.queues[lane]
	s.queues[lane] = append(queue, m)
	if !runs {
		s.lanes.Go(func() { s.walk(lane) })
	}
}

// walk handles a lane's messages one after the other and ends when there are none.
func (s *subscription) walk(lane string) {
	for {
		s.mu.Lock()
		queue := s.queues[lane]
		if len(queue) == 0 {
			delete(s.queues, lane)
			s.mu.Unlock()
			return
		}
		m := queue[0]
		s.queues[lane] = queue[1:]
		slots := s.slots(s.cfg.Tenant(m.Subject()))
		s.mu.Unlock()

		select {
		case slots <- struct{}{}:
			s.handle(m)
			<-slots
		case <-s.ctx.Done():
			s.settle(m, m.Nak)
		}
	}
}

func (s *subscription) slots(tenant string) chan struct{} {
	c, ok := s.tenants[tenant]
	if !ok {
		c = make(chan struct{}, s.most)
		s.tenants[tenant] = c
	}
	return c
}

func (s *subscription) handle(m jetstream.Msg) {
	wm, done := s.wrap(m)
	defer done()
	select {
	case s.out <- wm:
	case <-s.ctx.Done():
		s.settle(m, m.Nak)
		return
	}
	select {
	case <-wm.Acked():
		s.settle(m, m.Ack)
	case <-wm.Nacked():
		s.settle(m, func() error { return m.NakWithDelay(s.retryDelay(m)) })
	case <-s.grace.Done():
		s.settle(m, m.Nak)
	}
}

func (s *subscription) settle(m jetstream.Msg, how func() error) {
	s.mu.Lock()
	delete(s.inFlight, m)
	s.mu.Unlock()
	if err := how(); err != nil && s.ctx.Err() == nil {
		// The message comes again after AckWait: handlers answer a second hearing as the first.
		s.log.Warn("settle", "err", err)
	}
}

// heartbeat keeps every message that is handled or waits its turn.
func (s *subscription) heartbeat(done <-chan struct{}) {
	ticker := time.NewTicker(s.cfg.AckWait / 3)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		kept := make([]jetstream.Msg, 0, len(s.inFlight))
		for m := range s.inFlight {
			kept = append(kept, m)
		}
		s.mu.Unlock()
		for _, m := range kept {
			_ = m.InProgress() // settled meanwhile, or the bus is away: either way AckWait decides
		}
	}
}

func (s *subscription) retryDelay(m jetstream.Msg) time.Duration {
	meta, err := m.Metadata()
	if err != nil {
		return time.Second
	}
	return s.cfg.RetryDelay(meta.NumDelivered)
}

// wrap makes Watermill's message, whose context ends when the message is settled.
func (s *subscription) wrap(m jetstream.Msg) (*message.Message, context.CancelFunc) {
	header := m.Headers() // nil on a message that was published without any
	wm := message.NewMessage(header.Get(HeaderMsgID), m.Data())
	for k := range header {
		wm.Metadata[k] = header.Get(k)
	}
	d := Delivery{Subject: m.Subject()}
	if meta, err := m.Metadata(); err == nil {
		d.Stream, d.Seq, d.Deliveries, d.StoredAt = meta.Stream, meta.Sequence.Stream, meta.NumDelivered, meta.Timestamp
	}
	ctx := context.WithValue(Extract(s.grace, header), deliveryKey{}, d)
	ctx, cancel := context.WithCancel(ctx)
	wm.SetContext(ctx)
	return wm, cancel
}

// Delivery says where a message stands.
type Delivery struct {
	Subject    string
	Stream     string
	Seq        uint64
	Deliveries uint64 // 1 the first time
	StoredAt   time.Time
}

type deliveryKey struct{}

// DeliveryOf returns where the message that ctx belongs to stands.
func DeliveryOf(ctx context.Context) Delivery {
	d, _ := ctx.Value(deliveryKey{}).(Delivery)
	return d
}
