// Package follow brings readers what the ledger records, as it is recorded and from any place on.
//
// The ledger is the one source: a hint on the bus only says that asking is worth it now, so a hint that is lost costs
// a moment and never an event. A reader that is slow slows nobody else, since each asks for its own pages.
package follow

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// Waits of a follower: between questions without news, between signs of life, and when the ledger is away.
const (
	askEvery  = 250 * time.Millisecond
	beatEvery = 15 * time.Second
	maxAway   = 5 * time.Second
)

// maxPerMember is how many streams one member may have open.
const maxPerMember = 20

// Ledger answers where it stands and what it has.
type Ledger interface {
	Position(context.Context, auth.Identity) (ask.Cursor, error)
	Events(context.Context, auth.Identity, ask.Events) (ask.EventPage, error)
}

// Reader takes what is followed. An error from it ends the following.
type Reader interface {
	Event(ask.Event, ask.Cursor) error // the cursor is the place right after the event
	Caught(ask.Cursor) error           // everything up to here was given; called again and again
	Notice(problem.Detail) error       // something is the matter that the reader should know of
	Beat(*ask.Cursor) error            // nothing else happened for a while; nil while it is not known where now is
}

// NewsReader is a Reader that also takes what the calls of a followed run say while they run. It is not recorded, and
// a reader that is slow misses some.
type NewsReader interface{ News(call.News) error }

// Hub follows the ledger for many readers.
type Hub struct {
	conn    *bus.Conn // set by Listen
	ledger  Ledger
	recheck func(context.Context, auth.Identity) error
	most    int

	mu      sync.Mutex
	readers map[*reading]struct{}
}

type reading struct {
	who   auth.Identity
	wake  chan struct{}
	doubt atomic.Bool // whether it may still read has to be asked before it is given anything more
}

// New makes a hub for at most most readers. recheck says whether an identity still holds.
func New(ledger Ledger, recheck func(context.Context, auth.Identity) error, most int) *Hub {
	return &Hub{ledger: ledger, recheck: recheck, most: most, readers: map[*reading]struct{}{}}
}

// Readers counts who follows.
func (h *Hub) Readers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers)
}

// Listen wakes readers at news of the ledger, until the answer is called.
func (h *Hub) Listen(conn *bus.Conn) (stop func(), err error) {
	h.conn = conn
	sub, err := conn.NC.Subscribe(bus.LiveSubject("*.ledger"), func(m *nats.Msg) {
		tenant := m.Subject[len(bus.LiveSubject("")) : len(m.Subject)-len(".ledger")]
		h.wake(id.Tenant(tenant))
	})
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the ledger's news cannot be heard")
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails only when the connection is gone already
}

func (h *Hub) wake(tenant id.Tenant) { h.rouse(tenant, false) }

// Doubt has every reader of a tenant checked before it is given anything more: somebody was removed, or a token revoked.
func (h *Hub) Doubt(tenant id.Tenant) { h.rouse(tenant, true) }

func (h *Hub) rouse(tenant id.Tenant, doubt bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		if r.who.Tenant == tenant {
			if doubt {
				r.doubt.Store(true)
			}
			select {
			case r.wake <- struct{}{}:
			default: // it will look anyway
			}
		}
	}
}

// Enter takes a place among the readers, before anything is written to one. Problems: busy.
func (h *Hub) Enter(who auth.Identity) (*Follower, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	own := 0
	for r := range h.readers {
		if r.who.Tenant == who.Tenant && r.who.Member == who.Member {
			own++
		}
	}
	if own >= maxPerMember || len(h.readers) >= h.most {
		return nil, problem.New(problem.Busy, "too many event streams are open; close some, or try again later")
	}
	r := &reading{who: who, wake: make(chan struct{}, 1)}
	r.doubt.Store(true) // what was said between the request's check and now reached nobody
	h.readers[r] = struct{}{}
	return &Follower{hub: h, reading: r}, nil
}

// Follower is a place among the readers.
type Follower struct {
	hub     *Hub
	reading *reading
}

// Leave gives the place up.
func (f *Follower) Leave() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	delete(f.hub.readers, f.reading)
}

// Follow gives to what the filters of q let through, after q.After, or from now on when from is nil. It returns when
// ctx ends, the reader fails, or the identity does not hold any more.
func (f *Follower) Follow(ctx context.Context, from *ask.Cursor, q ask.Events, to Reader) error {
	p := &progress{Follower: f, from: from, q: q, to: to}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	news, leave, err := f.news(q, to)
	if err != nil {
		return err
	}
	defer leave()
	for {
		more, err := false, p.check(ctx)
		if err == nil && !f.reading.doubt.Load() {
			more, err = p.step(ctx)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
		if more {
			continue
		}
		timer := time.NewTimer(p.pause())
		select {
		case <-ctx.Done():
		case <-f.reading.wake:
		case <-timer.C:
		case <-beat.C:
			err = p.beat(ctx)
		case said := <-news:
			err = to.(NewsReader).News(said)
		}
		timer.Stop()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// maxNews is how much of a run's news waits for a reader; more is left out, which the reader sees by its count.
const maxNews = 64

// news hears what the calls of the followed run say. There is none without a run, or for a reader that takes none.
func (f *Follower) news(q ask.Events, to Reader) (<-chan call.News, func(), error) {
	if _, ok := to.(NewsReader); !ok || q.Run == "" || q.Kind != "" || f.hub.conn == nil {
		return nil, func() {}, nil
	}
	out := make(chan call.News, maxNews)
	sub, err := f.hub.conn.NC.Subscribe(bus.LiveSubject(string(f.reading.who.Tenant)+".*.up"), func(m *nats.Msg) {
		var said call.News
		if !strings.Contains(m.Subject, ".call_") || json.Unmarshal(m.Data, &said) != nil || said.Run != q.Run || said.Method != "" {
			return // of another run, a model's, or for the client of a call
		}
		select {
		case out <- said:
		default:
		}
	})
	if err != nil {
		return nil, nil, problem.Wrap(err, problem.Unavailable, "the run's news cannot be heard")
	}
	return out, func() { _ = sub.Unsubscribe() }, nil // fails only when the connection is gone already
}

// progress is how far one following is.
type progress struct {
	*Follower
	from *ask.Cursor // nil until it is known where now is
	q    ask.Events
	to   Reader
	away int // questions in a row that the ledger did not answer
}

// step asks once. An error means that the reader, or its right to read, is gone.
func (p *progress) step(ctx context.Context) (more bool, err error) {
	if p.from == nil {
		now, err := p.hub.ledger.Position(ctx, p.reading.who)
		if err != nil {
			return false, p.missing(ctx, err)
		}
		p.from = &now
	}
	p.q.After = *p.from
	page, err := p.hub.ledger.Events(ctx, p.reading.who, p.q)
	if err != nil {
		return false, p.missing(ctx, err)
	}
	if p.away > 0 {
		p.away = 0
		if err := p.to.Notice(problem.Detail{Code: problem.Pending, Message: "the ledger answers again; nothing was left out"}); err != nil {
			return false, err
		}
	}
	at := *p.from
	for _, e := range page.Events {
		at = at.Past(schemas.Stream(e.Stream), e.Seq)
		if err := p.to.Event(e, at); err != nil {
			return false, err
		}
	}
	at = at.Further(page.Next)
	moved := at != *p.from
	p.from = &at
	return page.More && moved, p.to.Caught(at)
}

// missing tells the reader, once, that the ledger does not answer. Its place stays what it was.
func (p *progress) missing(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return nil
	}
	p.away++
	if p.away > 1 {
		return nil
	}
	return p.to.Notice(problem.DetailOf(cause))
}

func (p *progress) pause() time.Duration {
	return min(askEvery<<min(max(p.away-1, 0), 10), maxAway)
}

func (p *progress) beat(ctx context.Context) error {
	p.reading.doubt.Store(true)
	if err := p.check(ctx); err != nil {
		return err
	}
	return p.to.Beat(p.from)
}

// check settles a doubt, unless it cannot be told now. An error means that the right to read is gone.
func (p *progress) check(ctx context.Context) error {
	if !p.reading.doubt.Swap(false) {
		return nil
	}
	err := p.hub.recheck(ctx, p.reading.who)
	if problem.CodeOf(err) == problem.Unauthenticated {
		_ = p.to.Notice(problem.DetailOf(err)) // it ends in either case
		return err
	}
	if err != nil {
		p.reading.doubt.Store(true)
	}
	return nil
}
