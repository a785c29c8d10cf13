package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/duplex"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/visit"
)

// Bounds of visits.
const (
	maxVisits  = 32 // of a machine
	lookAtLife = time.Second
)

// visitor is a person on an attachment. What is known of the visit is on the disk before it begins, and until its end was
// told: another life of the connector goes on with a shell, and says that a preview has ended.
type visitor struct {
	connector.Visit
	place *place
	end   context.CancelFunc // of everything that is about it in this life

	mu      sync.Mutex
	streams map[int]*stream
	opening map[int]chan struct{} // streams that are being joined; closed when they are, or are not
	seen    time.Time             // when the person was last heard, by streams that are no more
	opened  int                   // streams, ever
	in, out int64
	gone    bool // the person left
	hung    bool // they may not be there any more
	over    *visit.Ended
}

// stream is one of a visit's.
type stream struct {
	*duplex.End
	stop context.CancelFunc
}

func visitsDir(p *place) string { return filepath.Join(p.dir, "visits") }

func visitFile(p *place, v id.Visit) string { return filepath.Join(visitsDir(p), string(v)+".json") }

// OpenVisit implements link.Machine. It begins a visit, or goes on with it, with one of its streams, whose messages send passes
// on. fresh is false for a permit that has run out: then only what is there already goes on.
func (h *Host) OpenVisit(ctx context.Context, v connector.Visit, o connector.OpenVisit, fresh bool, send func([]byte) error) error {
	if _, err := id.Parse[id.Visit](string(v.Visit)); err != nil || !v.Way.Valid() || o.Stream < 0 || o.Stream > 1<<20 {
		return problem.New(problem.Invalid, "the visit is not whole")
	}
	p, err := h.at(ctx, v.Attachment)
	if err != nil {
		return err
	}
	g, err := h.visitor(ctx, p, v, o, fresh)
	if err != nil {
		return err
	}
	return h.stream(ctx, g, o, send)
}

// visitor gives a visit that is there, or begins it. Nobody else's visit waits for that: it takes as long as the cage does.
func (h *Host) visitor(ctx context.Context, p *place, v connector.Visit, o connector.OpenVisit, fresh bool) (*visitor, error) {
	begun, err := claim(ctx, &h.visiting, h.entering, v.Visit)
	if err != nil {
		return nil, err
	}
	if g, there := h.visitors[v.Visit]; there {
		h.visiting.Unlock()
		return g, nil
	}
	switch {
	case !fresh:
		err = problem.New(problem.Expired, "the visit has ended, and may not begin any more")
	case len(h.visitors)+len(h.entering) >= maxVisits:
		err = problem.New(problem.Busy, "%d people are on the machine, which is the most at once", maxVisits)
	}
	if err != nil {
		h.visiting.Unlock()
		return nil, err
	}
	h.entering[v.Visit] = begun
	h.visiting.Unlock()
	err = h.begin(ctx, p, v, o)
	h.visiting.Lock()
	defer h.visiting.Unlock()
	delete(h.entering, v.Visit)
	close(begun)
	if err != nil {
		return nil, err
	}
	return h.receive(p, v), nil
}

// claim locks as soon as nobody else is about key, and gives what says to others that this one is, once it is put under the key.
// Problems: those of a context that ended first, unlocked.
func claim[K comparable](ctx context.Context, lock sync.Locker, busy map[K]chan struct{}, key K) (chan struct{}, error) {
	for {
		lock.Lock()
		others, there := busy[key]
		if !there {
			return make(chan struct{}), nil
		}
		lock.Unlock()
		select {
		case <-others:
		case <-ctx.Done():
			return nil, problem.Wrap(ctx.Err(), problem.Unavailable, "the visit is being opened already, and not done with that")
		}
	}
}

// begin holds a visit against the policy and begins it. It is called by one at a time for a visit.
func (h *Host) begin(ctx context.Context, p *place, v connector.Visit, o connector.OpenVisit) error {
	// Also one whose end was told: its permit may be good still.
	for _, file := range []string{visitFile(p, v.Visit), filepath.Join(visitsDir(p), string(v.Visit)+".ended")} {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			return problem.New(problem.Conflict, "the visit has ended")
		}
	}
	if err := os.MkdirAll(visitsDir(p), 0o700); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the visit's record cannot be written: %v", err)
	}
	switch v.Way {
	case visit.Shell:
		if err := h.cfg.Policy.MayShell(); err != nil {
			return err
		}
	case visit.Preview:
		if err := h.cfg.Policy.MayPreview(v.Port); err != nil {
			return err
		}
	}
	if err := writeReceipt(visitFile(p, v.Visit), v); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the visit's record cannot be written: %v", err)
	}
	// A crash here leaves a visit of which nothing was begun: the next life says that it ended.
	if v.Way == visit.Shell {
		if err := h.beginShell(ctx, p, v, o); err != nil {
			_ = os.Remove(visitFile(p, v.Visit)) // else its end is told, as of one that never began
			return err
		}
	}
	return nil
}

// receive looks after a visit in this life. It is called with visiting held.
func (h *Host) receive(p *place, v connector.Visit) *visitor {
	ctx, end := context.WithCancel(h.life)
	g := &visitor{Visit: v, place: p, end: end, streams: map[int]*stream{}, opening: map[int]chan struct{}{}, seen: time.Now()}
	h.visitors[v.Visit] = g
	h.working.Go(func() {
		defer end()
		if v.Way == visit.Shell {
			h.keepShell(ctx, g)
		} else {
			h.keepPreview(ctx, g)
		}
	})
	return g
}

// visitsAgain finds the visits of an earlier life.
func (h *Host) visitsAgain(p *place) {
	files, _ := filepath.Glob(filepath.Join(visitsDir(p), "*.json")) // the pattern is right
	h.visiting.Lock()
	defer h.visiting.Unlock()
	for _, file := range files {
		raw, err := os.ReadFile(file)
		var v connector.Visit
		if err != nil || json.Unmarshal(raw, &v) != nil || filepath.Base(file) != string(v.Visit)+".json" {
			continue
		}
		_, there := h.visitors[v.Visit]
		if _, begins := h.entering[v.Visit]; !there && !begins {
			h.receive(p, v)
		}
	}
}

// stream joins a stream of a visit to the person's side. What is asked of the cage for that, a port that nobody answers at for
// one, holds up no other stream and no other visit.
func (h *Host) stream(ctx context.Context, g *visitor, o connector.OpenVisit, send func([]byte) error) error {
	joined, err := claim(ctx, &g.mu, g.opening, o.Stream)
	if err != nil {
		return err
	}
	if s, there := g.streams[o.Stream]; there {
		s.Bind(send)
		g.mu.Unlock()
		return nil
	}
	switch {
	case g.over != nil && g.Way == visit.Preview:
		err = problem.New(problem.Conflict, "the visit has ended")
	case len(g.streams)+len(g.opening) >= connector.MaxVisitStreams:
		err = problem.New(problem.Busy, "the visit has %d streams, which is the most at once", connector.MaxVisitStreams)
	case g.Way == visit.Shell && o.Stream != 0:
		err = problem.New(problem.Invalid, "a shell has one stream")
	}
	if err != nil {
		g.mu.Unlock()
		return err
	}
	g.opening[o.Stream] = joined
	g.mu.Unlock()
	end, run, err := h.join(ctx, g, o, send)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.opening, o.Stream)
	close(joined)
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(h.life)
	if g.over != nil && g.Way == visit.Preview { // it ended meanwhile: what was joined ends at once
		stop()
	}
	s := &stream{End: end, stop: stop}
	g.streams[o.Stream] = s
	g.opened++
	h.working.Go(func() {
		defer stop()
		h.working.Go(func() { s.Run(life) })
		run(life, s)
		g.mu.Lock()
		delete(g.streams, o.Stream)
		if heard := s.Heard(); heard.After(g.seen) {
			g.seen = heard
		}
		g.mu.Unlock()
	})
	return nil
}

// join asks the cage for a stream's other end.
func (h *Host) join(ctx context.Context, g *visitor, o connector.OpenVisit, send func([]byte) error) (*duplex.End, func(context.Context, *stream), error) {
	switch {
	case g.Way == visit.Shell:
		e, err := g.place.shim.Get(ctx, string(g.Visit.Visit), 0)
		if err != nil {
			return nil, nil, err
		}
		return duplex.New(send, max(o.Received, 0), e.Fed), func(ctx context.Context, s *stream) { h.serveShell(ctx, g, s) }, nil
	case o.Stream == 0:
		return duplex.New(send, 0, 0), func(ctx context.Context, s *stream) { h.servePresence(ctx, g, s) }, nil
	}
	conn, err := g.place.shim.Dial(ctx, g.Port)
	if err != nil {
		return nil, nil, err
	}
	return duplex.New(send, 0, 0), func(ctx context.Context, s *stream) { serveConn(ctx, g, s, conn) }, nil
}

// TakeVisit implements link.Machine: a message of a stream's other side.
func (h *Host) TakeVisit(v id.Visit, number int, message []byte) {
	h.visiting.Lock()
	g := h.visitors[v]
	h.visiting.Unlock()
	if g == nil {
		return
	}
	g.mu.Lock()
	s := g.streams[number]
	g.hung = g.hung || bytes.Equal(message, connector.VisitOver)
	g.mu.Unlock()
	if s != nil {
		s.Take(message)
	}
}

// away is for how long nothing was heard of the person.
func (g *visitor) away() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hung || g.gone && g.Way == visit.Shell {
		return connector.VisitAway
	}
	last := g.seen
	for _, s := range g.streams {
		if heard := s.Heard(); heard.After(last) {
			last = heard
		}
	}
	return time.Since(last)
}

// EndedVisits implements link.Machine: the visits whose end nobody was told yet.
func (h *Host) EndedVisits() (out []visit.Ended) {
	h.visiting.Lock()
	defer h.visiting.Unlock()
	for _, g := range h.visitors {
		g.mu.Lock()
		if g.over != nil && len(g.streams)+len(g.opening) == 0 {
			out = append(out, *g.over)
		}
		g.mu.Unlock()
	}
	return out
}

// ToldVisit implements link.Machine: the end of a visit is on record.
func (h *Host) ToldVisit(v id.Visit) {
	h.visiting.Lock()
	defer h.visiting.Unlock()
	if g, ok := h.visitors[v]; ok {
		g.end()
		delete(h.visitors, v)
		// A crash before this tells the same end again, which the record takes once. The permit may hold still: that this visit
		// was is kept for as long.
		if err := os.Rename(visitFile(g.place, v), filepath.Join(visitsDir(g.place), string(v)+".ended")); err != nil && !errors.Is(err, os.ErrNotExist) {
			h.cfg.Log.Warn("a visit's end is told again by the next life", "visit", v, "err", err)
		}
	}
}

// finish notes how a visit ended.
func (g *visitor) finish(e visit.Ended) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.Visit, e.Environment, e.Streams, e.In, e.Out = g.Visit.Visit, g.Environment, g.opened, max(e.In, g.in), max(e.Out, g.out)
	g.over = &e
}

func (g *visitor) count(in, out int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.in, g.out = g.in+int64(in), g.out+int64(out)
}

// drainFor is how long the end of a stream is offered to a person who may come back.
const drainFor = 30 * time.Second

func drain(ctx context.Context, s *stream) {
	ctx, cancel := context.WithTimeout(ctx, drainFor)
	defer cancel()
	_ = s.Drain(ctx) // whoever does not come back knows of the end by its record
}
