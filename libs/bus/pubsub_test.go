package bus_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
)

// subjects in Watermill's suite are free text; a stream name is not.
func topicName(topic string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, topic)
}

func suite(t *testing.T, features tests.Features, maxPending int) {
	b := buskit.Start(t)
	ensure := func(ctx context.Context, topic string) (string, error) {
		name := "T_" + topicName(topic)
		_, err := b.Boot.JS.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{topic}, Storage: jetstream.MemoryStorage,
		})
		return name, err
	}
	construct := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		sub := bus.NewSubscriber(bus.SubscriberConfig{
			Open: func(ctx context.Context, topic string) (jetstream.Consumer, error) {
				stream, err := ensure(ctx, topic)
				if err != nil {
					return nil, err
				}
				return b.Boot.JS.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
					Durable: "d_" + topicName(group), AckPolicy: jetstream.AckExplicitPolicy,
					AckWait: 3 * time.Second, MaxAckPending: maxPending,
				})
			},
			MaxInFlight: maxPending, AckWait: 3 * time.Second, CloseTimeout: 50 * time.Millisecond,
			RetryDelay: func(uint64) time.Duration { return 10 * time.Millisecond },
		}, slog.New(slog.DiscardHandler))
		t.Cleanup(func() { _ = sub.Close() }) // the suite leaves some open
		return ensuring{bus.NewPublisher(b.Boot), ensure}, sub
	}
	tests.TestPubSub(t, features,
		func(t *testing.T) (message.Publisher, message.Subscriber) { return construct(t, "one") },
		construct)
}

// ensuring makes the topic's stream before the first publish, as the suite expects of a broker.
type ensuring struct {
	*bus.Publisher
	ensure func(context.Context, string) (string, error)
}

func (p ensuring) Publish(topic string, messages ...*message.Message) error {
	if _, err := p.ensure(context.Background(), topic); err != nil {
		return err
	}
	return p.Publisher.Publish(topic, messages...)
}

func TestWatermillSuite(t *testing.T) {
	suite(t, tests.Features{ConsumerGroups: true, Persistent: true}, 64)
}

func TestWatermillSuiteInOrder(t *testing.T) {
	suite(t, tests.Features{ConsumerGroups: true, Persistent: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true}, 1)
}
