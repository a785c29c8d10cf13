package callpath

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
)

const (
	floorStream  = "FLOOR"
	floorSize    = 512 // bytes of each message
	hintHeader   = "Floor-Hint"
	floorWait    = 5 * time.Second
	callsPerRun  = 300 // then a caller goes on with another run
	ledgerBatch  = 1000
	ledgerWait   = 500 * time.Millisecond
	pullExpiry   = 4 * time.Second
	pullMessages = bus.MaxAckPending + 256
)

// floor is the bare path: what the bus itself asks for three appends in a row, each after the one before is stored.
type floor struct {
	caller  *nats.Conn
	js      jetstream.JetStream
	hints   []*nats.Subscription // one per caller
	calls   []int                // made so far, per caller
	hopping []jetstream.ConsumeContext
	working sync.WaitGroup // messages on a hop

	stop   context.CancelFunc
	ledger chan error // how the consumer beside ended
}

// newFloor makes the bare path for some callers. Broker and executor have connections of their own, as services do.
func newFloor(ctx context.Context, caller, broker, executor *bus.Conn, callers int) (*floor, error) {
	f := &floor{caller: caller.NC, js: caller.JS, calls: make([]int, callers), ledger: make(chan error, 1)}
	_, err := f.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: floorStream, Subjects: []string{"floor.>"}, Storage: jetstream.FileStorage,
		DenyDelete: true, DenyPurge: true, AllowDirect: true, Duplicates: 10 * time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("stream of the bare path: %w", err)
	}
	for i := range callers {
		sub, err := f.caller.SubscribeSync(hintSubject(i))
		if err != nil {
			return nil, fmt.Errorf("hints of the bare path: %w", err)
		}
		f.hints = append(f.hints, sub)
	}
	ctx, f.stop = context.WithCancel(ctx)
	go func() { f.ledger <- overhear(ctx, caller, floorStream) }()
	if err := f.hop(ctx, broker, "requested", "admitted", func(*nats.Msg) {}); err != nil {
		return nil, errors.Join(err, f.close())
	}
	err = f.hop(ctx, executor, "admitted", "finished", func(m *nats.Msg) {
		_ = executor.NC.Publish(m.Header.Get(hintHeader), nil) // a lost hint fails the call, which fails the benchmark
	})
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func hintSubject(caller int) string { return "floorhint." + strconv.Itoa(caller) }

// hop hears one kind of message and stores the next, then tells, and only then is done with what it heard.
func (f *floor) hop(ctx context.Context, conn *bus.Conn, from, to string, tell func(*nats.Msg)) error {
	c, err := conn.JS.CreateConsumer(ctx, floorStream, jetstream.ConsumerConfig{
		Durable: from, FilterSubject: "floor.*.*." + from, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: bus.MaxAckPending,
	})
	if err != nil {
		return fmt.Errorf("consumer of the bare path: %w", err)
	}
	hopping, err := c.Consume(func(m jetstream.Msg) {
		f.working.Go(func() {
			subject := m.Subject()
			next := &nats.Msg{Subject: subject[:len(subject)-len(from)] + to, Data: m.Data(), Header: m.Headers()}
			if _, err := conn.JS.PublishMsg(context.WithoutCancel(ctx), next); err != nil {
				return // it comes again
			}
			tell(next)
			_ = m.Ack() // it comes again
		})
	}, jetstream.PullMaxMessages(pullMessages), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return fmt.Errorf("consumer of the bare path: %w", err)
	}
	f.hopping = append(f.hopping, hopping)
	return nil
}

func (f *floor) call(ctx context.Context, caller int) error {
	run := f.calls[caller] / callsPerRun
	f.calls[caller]++
	m := &nats.Msg{Subject: fmt.Sprintf("floor.%d.%d.requested", caller, run), Data: make([]byte, floorSize), Header: nats.Header{}}
	m.Header.Set(hintHeader, hintSubject(caller))
	if _, err := f.js.PublishMsg(ctx, m); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	if _, err := f.hints[caller].NextMsg(floorWait); err != nil {
		return fmt.Errorf("hint: %w", err)
	}
	return nil
}

func (f *floor) close() error {
	f.stop()
	for _, h := range f.hopping {
		h.Stop()
		<-h.Closed()
	}
	f.working.Wait()
	return <-f.ledger
}

// overhear reads everything on a stream until ctx ends, as the ledger does.
func overhear(ctx context.Context, conn *bus.Conn, stream string) error {
	c, err := conn.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: "overhear", AckPolicy: jetstream.AckAllPolicy, MaxAckPending: 4 * ledgerBatch,
	})
	if err != nil {
		return fmt.Errorf("consumer beside %s: %w", stream, err)
	}
	for ctx.Err() == nil {
		batch, err := c.Fetch(ledgerBatch, jetstream.FetchMaxWait(ledgerWait))
		if err != nil {
			return fmt.Errorf("consumer beside %s: %w", stream, err)
		}
		var last jetstream.Msg
		for m := range batch.Messages() {
			last = m
		}
		if last != nil {
			err = last.Ack()
		}
		if err = errors.Join(err, batch.Error()); err != nil && ctx.Err() == nil {
			return fmt.Errorf("consumer beside %s: %w", stream, err)
		}
	}
	return nil
}
