package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
)

// StaleAfter is how long a view may go without proof that it has heard everything.
const StaleAfter = 2 * time.Second

// One request for messages.
const (
	maxFetch  = 512
	fetchWait = StaleAfter / 4
)

// View follows EW_CONTROL from the last event per subject on and keeps what its service needs of it in memory.
type View struct {
	conn  *bus.Conn
	log   *Log
	note  *slog.Logger
	kinds []string // that are applied; empty: all
	apply func(Stored)
	now   func() time.Time

	mu      sync.Mutex
	seq     uint64        // everything up to here is applied
	proven  time.Time     // the last moment of which it is certain that nothing of before is outstanding
	changed chan struct{} // closed and replaced whenever seq or proven moves
}

// NewView makes the view of this instance. apply is called for one event at a time, in stream order;
// the last event per aggregate and kind comes at least once, so apply keeps the highest sequence. Of other kinds than
// those named, only the place is noted: their bodies may be large.
func NewView(conn *bus.Conn, log *Log, note *slog.Logger, apply func(Stored), kinds ...string) *View {
	return &View{conn: conn, log: log, note: note, kinds: kinds, apply: apply, now: time.Now,
		changed: make(chan struct{})}
}

// Run follows the stream until ctx ends. After a loss it starts anew from the last event per subject, so that it
// never stays behind without knowing.
func (v *View) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := v.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		v.note.Warn("view starts anew", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
	return nil
}

func (v *View) follow(ctx context.Context) error {
	began := v.now()
	start, err := bus.AskRewind(ctx, v.conn)
	if err != nil {
		return err
	}
	consumer, err := v.conn.JS.Consumer(ctx, string(schemas.Control), start.Name)
	if err != nil {
		return err
	}
	pending := start.Pending
	if pending == 0 {
		v.move(start.Last, began)
	}
	asked, misses, next := began, 0, uint64(1)
	for ctx.Err() == nil {
		// Whoever was away for so long may have lost its place, and would read another instance's messages.
		if v.now().Sub(asked) > bus.ViewLapse*4/5 {
			return errors.New("this instance was away")
		}
		asked = v.now()
		// One request at a time, each on an inbox of its own. An empty answer after its full wait is the server's
		// word that nothing was outstanding when that was over; missing heartbeats are the bus's silence, which proves
		// nothing. An answer may lie here unread for as long as this process is halted: so what it proves is dated by when
		// it was asked for, not by when it is read. The wait is a quarter of StaleAfter, so that a busy machine may be late
		// with several answers.
		batch, err := consumer.Fetch(maxFetch, jetstream.FetchMaxWait(fetchWait), jetstream.FetchHeartbeat(StaleAfter/10))
		if err != nil {
			return err
		}
		got := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if meta.Sequence.Consumer != next {
				return errors.New("somebody else took messages of this view")
			}
			got, next = got+1, next+1
			if err := v.hear(ctx, m, meta); err != nil {
				return err
			}
			proven := time.Time{}
			if meta.NumPending == 0 {
				proven = asked
			}
			switch pending {
			case 0:
				v.move(meta.Sequence.Stream, proven)
				continue
			case 1: // everything of when it began to start is there
				if proven.IsZero() {
					proven = began
				}
				v.move(max(start.Last, meta.Sequence.Stream), proven)
			}
			pending--
		}
		switch err := batch.Error(); {
		case err == nil:
			misses = 0
			if pending == 0 && got < maxFetch { // a full answer says nothing of what comes after it
				v.move(0, asked.Add(fetchWait))
			}
		case errors.Is(err, jetstream.ErrConsumerDeleted), errors.Is(err, jetstream.ErrConsumerNotFound):
			return err
		default:
			if misses++; misses > 10 {
				return err
			}
		}
	}
	return ctx.Err()
}

func (v *View) hear(ctx context.Context, m jetstream.Msg, meta *jetstream.MsgMetadata) error {
	envelope, at, err := schemas.ParseEnvelope(m.Subject(), m.Data())
	if err != nil {
		v.note.Error("event cannot be decoded", "subject", m.Subject(), "seq", meta.Sequence.Stream, "err", err)
		return nil
	}
	if len(v.kinds) > 0 && !slices.Contains(v.kinds, at.Kind()) {
		return nil
	}
	if envelope, err = v.log.Restored(ctx, envelope); err != nil {
		return err
	}
	v.apply(Stored{Stream: schemas.Stream(meta.Stream), Seq: meta.Sequence.Stream, At: at, Envelope: envelope,
		Raw: m.Data(), StoredAt: meta.Timestamp})
	return nil
}

// move notes what is applied, and since when that was certain to be everything; zero: it was not.
func (v *View) move(seq uint64, proven time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seq = max(v.seq, seq)
	if proven.After(v.proven) {
		v.proven = proven
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

// Seq is the EW_CONTROL sequence up to which everything is applied.
func (v *View) Seq() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seq
}

// Current says whether the view was certain within the last 2 s to have heard everything. Who is not current admits
// and executes nothing: a revocation might be among what it missed.
func (v *View) Current() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.proven.IsZero() || v.now().Sub(v.proven) > StaleAfter {
		return problem.New(problem.Unavailable, "this instance has not heard the control stream for over %s", StaleAfter)
	}
	return nil
}

// Wait returns when everything up to seq is applied and the view is current.
func (v *View) Wait(ctx context.Context, seq uint64) error {
	for {
		v.mu.Lock()
		done, changed := v.seq >= seq && !v.proven.IsZero(), v.changed
		v.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return problem.Wrap(ctx.Err(), problem.Timeout, "this instance has not heard control sequence %d yet", seq)
		}
	}
}
