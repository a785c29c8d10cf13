package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
)

// lanes is a subscription on subjects T.<tenant>.<key>.
type lanes struct {
	t        *testing.T
	bus      *buskit.Bus
	sub      *bus.Subscriber
	messages <-chan *message.Message
}

func subscribe(t *testing.T, cfg bus.SubscriberConfig) *lanes {
	t.Helper()
	b := buskit.Start(t)
	if _, err := b.Boot.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "T", Subjects: []string{"T.>"}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	token := func(subject string, n int) string { return strings.Split(subject, ".")[n] }
	cfg.Open = func(ctx context.Context, _ string) (jetstream.Consumer, error) {
		return b.Boot.JS.CreateOrUpdateConsumer(ctx, "T", jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckExplicitPolicy, AckWait: cfg.AckWait, MaxAckPending: 64})
	}
	cfg.Lane = func(m jetstream.Msg) string { return token(m.Subject(), 2) }
	cfg.Tenant = func(subject string) string { return token(subject, 1) }
	cfg.MaxInFlight = 64
	if cfg.CloseTimeout == 0 {
		cfg.CloseTimeout = 50 * time.Millisecond // tests leave messages unsettled
	}
	l := &lanes{t: t, bus: b, sub: bus.NewSubscriber(cfg, slog.New(slog.DiscardHandler))}
	var err error
	if l.messages, err = l.sub.Subscribe(t.Context(), "T"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.sub.Close() })
	return l
}

func (l *lanes) publish(subject string) {
	l.t.Helper()
	if _, err := l.bus.Boot.JS.Publish(l.t.Context(), subject, []byte(subject)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lanes) next() *message.Message {
	l.t.Helper()
	select {
	case m := <-l.messages:
		return m
	case <-time.After(20 * time.Second):
		l.t.Fatal("no message came")
		return nil
	}
}

// none says that nothing more comes, for as long as a message would take many times over.
func (l *lanes) none(why string) {
	l.t.Helper()
	select {
	case m := <-l.messages:
		l.t.Fatalf("%s, and %s came", why, m.Payload)
	case <-time.After(300 * time.Millisecond):
	}
}

func TestOneLaneIsSerialAndLanesRunAtOnce(t *testing.T) {
	l := subscribe(t, bus.SubscriberConfig{AckWait: 3 * time.Second})
	for _, s := range []string{"T.a.x", "T.a.x", "T.a.y"} {
		l.publish(s)
	}
	first, second := l.next(), l.next()
	if string(first.Payload) == string(second.Payload) {
		t.Fatalf("two of lane %s at once", first.Payload)
	}
	l.none("both lanes are busy")
	first.Ack()
	second.Ack()
	if m := l.next(); string(m.Payload) != "T.a.x" {
		t.Errorf("then came %s", m.Payload)
	}
}

func TestATenantHasItsShareOnly(t *testing.T) {
	l := subscribe(t, bus.SubscriberConfig{AckWait: 3 * time.Second, PerTenant: func(string) int { return 2 }})
	for i := range 5 {
		l.publish(fmt.Sprintf("T.greedy.k%d", i))
	}
	l.publish("T.modest.k")
	seen := map[string]int{}
	for range 3 {
		seen[strings.Split(string(l.next().Payload), ".")[1]]++
	}
	if seen["greedy"] != 2 || seen["modest"] != 1 {
		t.Errorf("at once: %v", seen)
	}
	l.none("each tenant has its share")
}

// A handler that takes longer than AckWait keeps its message, and so does a message that waits its turn behind it.
func TestHeartbeatsKeepWhatIsHandledAndWhatWaits(t *testing.T) {
	l := subscribe(t, bus.SubscriberConfig{AckWait: 600 * time.Millisecond})
	l.publish("T.a.x")
	l.publish("T.a.x")
	for range 2 {
		m := l.next()
		if d := bus.DeliveryOf(m.Context()); d.Deliveries != 1 {
			t.Errorf("delivery %d", d.Deliveries)
		}
		l.none("it is being handled")
		<-time.After(1500 * time.Millisecond) // well over AckWait
		m.Ack()
	}
	l.none("both are done")
}

// Headers that are missing or have several values are somebody else's mistake, not a reason to stop.
func TestOddHeaders(t *testing.T) {
	l := subscribe(t, bus.SubscriberConfig{AckWait: 3 * time.Second})
	for _, header := range []nats.Header{nil, {}, {"Baggage": {"a=1", "b=2"}}, {"traceparent": {"nonsense"}, "Nats-Msg-Id": {"x"}}, {"Empty": {}}} {
		if _, err := l.bus.Boot.JS.PublishMsg(t.Context(), &nats.Msg{Subject: "T.a.x", Data: []byte("x"), Header: header}); err != nil {
			t.Fatal(err)
		}
		m := l.next()
		if header.Get("Baggage") != m.Metadata.Get("Baggage") {
			t.Errorf("baggage %q", m.Metadata.Get("Baggage"))
		}
		m.Ack()
	}
}

func TestClosingLeavesTheConnectionOpen(t *testing.T) {
	l := subscribe(t, bus.SubscriberConfig{AckWait: 3 * time.Second, CloseTimeout: 20 * time.Second})
	l.publish("T.a.x")
	m := l.next()
	var closed atomic.Bool
	go func() {
		_ = l.sub.Close()
		closed.Store(true)
	}()
	l2 := bus.NewPublisher(l.bus.Boot)
	if err := l2.Close(); err != nil {
		t.Fatal(err)
	}
	if closed.Load() {
		t.Error("closing did not wait for the handler")
	}
	m.Ack()
	buskit.Eventually(t, "the subscriber is closed", closed.Load)
	if _, err := l.bus.Boot.JS.Publish(t.Context(), "T.a.x", nil); err != nil {
		t.Errorf("the connection is closed: %v", err)
	}
	c, err := l.bus.Boot.JS.Consumer(t.Context(), "T", "d")
	if err != nil {
		t.Fatal(err)
	}
	if info := c.CachedInfo(); info.AckFloor.Stream != 1 {
		t.Errorf("the message that was acknowledged while closing is acknowledged up to %d", info.AckFloor.Stream)
	}
	if _, err := l.sub.Subscribe(t.Context(), "T"); err == nil {
		t.Error("a closed subscriber subscribes")
	}
}
