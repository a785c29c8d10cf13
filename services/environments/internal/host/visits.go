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
	seen    time.Time // when the person was last heard, by streams that are no more
	opened  int       // streams, ever
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
	h.visiting.Lock()
	defer h.visiting.Unlock()
	g, there := h.visitors[v.Visit]
	if !there {
		if !fresh {
			return problem.New(problem.Expired, "the visit has ended, and may not begin any more")
		}
		if g, err = h.begin(ctx, p, v, o); err != nil {
			return err
		}
	}
	return h.stream(ctx, g, o, send)
}

// begin holds a visit against the policy and begins it. It is called with visiting held.
func (h *Host) begin(ctx context.Context, p *place, v connector.Visit, o connector.OpenVisit) (*visitor, error) {
	if len(h.visitors) >= maxVisits {
		return nil, problem.New(problem.Busy, "%d people are on the machine, which is the most at once", maxVisits)
	}
	// Also one whose end was told: its permit may be good still.
	for _, file := range []string{visitFile(p, v.Visit), filepath.Join(visitsDir(p), string(v.Visit)+".ended")} {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			return nil, problem.New(problem.Conflict, "the visit has ended")
		}
	}
	if err := os.MkdirAll(visitsDir(p), 0o700); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the visit's record cannot be written: %v", err)
	}
	switch v.Way {
	case visit.Shell:
		if err := h.cfg.Policy.MayShell(); err != nil {
			return nil, err
		}
	case visit.Preview:
		if err := h.cfg.Policy.MayPreview(v.Port); err != nil {
			return nil, err
		}
	}
	if err := writeReceipt(visitFile(p, v.Visit), v); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the visit's record cannot be written: %v", err)
	}
	// A crash here leaves a visit of which nothing was begun: the next life says that it ended.
	if v.Way == visit.Shell {
		if err := h.beginShell(ctx, p, v, o); err != nil {
			_ = os.Remove(visitFile(p, v.Visit)) // else its end is told, as of one that never began
			return nil, err
		}
	}
	return h.receive(p, v), nil
}

// receive looks after a visit in this life. It is called with visiting held.
func (h *Host) receive(p *place, v connector.Visit) *visitor {
	ctx, end := context.WithCancel(h.life)
	g := &visitor{Visit: v, place: p, end: end, streams: map[int]*stream{}, seen: time.Now()}
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
		if _, there := h.visitors[v.Visit]; !there {
			h.receive(p, v)
		}
	}
}

// stream joins a stream of a visit to the person's side. It is called with visiting held.
func (h *Host) stream(ctx context.Context, g *visitor, o connector.OpenVisit, send func([]byte) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, there := g.streams[o.Stream]; there {
		s.Bind(send)
		return nil
	}
	switch {
	case g.over != nil && g.Way == visit.Preview:
		return problem.New(problem.Conflict, "the visit has ended")
	case len(g.streams) >= connector.MaxVisitStreams:
		return problem.New(problem.Busy, "the visit has %d streams, which is the most at once", len(g.streams))
	case g.Way == visit.Shell && o.Stream != 0:
		return problem.New(problem.Invalid, "a shell has one stream")
	}
	life, stop := context.WithCancel(h.life)
	s := &stream{stop: stop}
	var run func(context.Context)
	switch {
	case g.Way == visit.Shell:
		e, err := g.place.shim.Get(ctx, string(g.Visit.Visit), 0)
		if err != nil {
			stop()
			return err
		}
		s.End = duplex.New(send, max(o.Received, 0), e.Fed)
		run = func(ctx context.Context) { h.serveShell(ctx, g, s) }
	case o.Stream == 0:
		s.End = duplex.New(send, 0, 0)
		run = func(ctx context.Context) { h.servePresence(ctx, g, s) }
	default:
		conn, err := g.place.shim.Dial(ctx, g.Port)
		if err != nil {
			stop()
			return err
		}
		s.End = duplex.New(send, 0, 0)
		run = func(ctx context.Context) { serveConn(ctx, g, s, conn) }
	}
	g.streams[o.Stream] = s
	g.opened++
	h.working.Go(func() {
		defer stop()
		h.working.Go(func() { s.Run(life) })
		run(life)
		g.mu.Lock()
		delete(g.streams, o.Stream)
		if heard := s.Heard(); heard.After(g.seen) {
			g.seen = heard
		}
		g.mu.Unlock()
	})
	return nil
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
		if g.over != nil && len(g.streams) == 0 {
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
