package sandbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// ErrFull is the cause of every busy that the pool says of itself: it had no place or no worker, and the script has not
// begun.
var ErrFull = errors.New("the script pool is full")

func full(format string, args ...any) *problem.Error {
	return problem.Wrap(ErrFull, problem.Busy, format+": the script was not run; try again in some seconds, with fewer scripts at once", args...)
}

// gate lets a bounded number of scripts in, a bounded number of each tenant, and takes turns between the tenants that
// wait: who sends a thousand scripts waits behind himself, not in front of the others.
type gate struct {
	most, perTenant, queue int
	patience               time.Duration

	mu      sync.Mutex
	inside  int
	tenants map[string]*line // who is inside or waits
	turns   []string         // the tenants that wait, the next first
	latest  string           // the tenant that came last
	shared  time.Time        // when one came after another
}

// line is one tenant's place.
type line struct {
	inside  int
	waiting []chan struct{} // closed on entry
}

func newGate(c Config) *gate {
	return &gate{most: c.Running, perTenant: c.PerTenant, queue: c.Queue, patience: c.Patience, tenants: map[string]*line{}}
}

// enter waits for a place and gives the way out. It is refused at once when the tenant's queue is full, and after the
// gate's patience.
func (g *gate) enter(ctx context.Context, tenant string) (leave func(), err error) {
	g.mu.Lock()
	if g.latest != "" && g.latest != tenant {
		g.shared = time.Now()
	}
	g.latest = tenant
	l := g.tenants[tenant]
	if l == nil {
		l = &line{}
		g.tenants[tenant] = l
	}
	if len(l.waiting) >= g.queue && !g.roomFor(l) {
		g.mu.Unlock()
		return nil, full("%d scripts of this tenant wait already", g.queue)
	}
	ticket := make(chan struct{})
	l.waiting = append(l.waiting, ticket)
	if len(l.waiting) == 1 {
		g.turns = append(g.turns, tenant)
	}
	g.admit()
	g.mu.Unlock()

	patience := time.NewTimer(g.patience)
	defer patience.Stop()
	select {
	case <-ticket:
		return func() { g.leave(tenant) }, nil
	default:
	}
	select {
	case <-ticket:
		return func() { g.leave(tenant) }, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-patience.C:
		err = full("no place was free for the script within %s", g.patience)
	}
	if !g.giveUp(tenant, ticket) {
		g.leave(tenant) // the place came in the same instant
	}
	return nil, err
}

// alone says whether a tenant has one script inside.
func (g *gate) alone(tenant string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.tenants[tenant]
	return l == nil || l.inside <= 1
}

// neighbourly is how long a pool is taken to be shared after two tenants used it.
const neighbourly = 10 * time.Second

// isShared says whether more than one tenant uses the pool in these seconds.
func (g *gate) isShared() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.shared) < neighbourly
}

func (g *gate) state() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := State{Running: g.inside}
	for _, l := range g.tenants {
		s.Waiting += len(l.waiting)
	}
	return s
}

func (g *gate) roomFor(l *line) bool {
	return g.inside < g.most && l.inside < g.perTenant && len(l.waiting) == 0
}

// admit lets in whom there is room for, a tenant at a time. The caller holds mu.
func (g *gate) admit() {
	for passed := 0; passed < len(g.turns) && g.inside < g.most; {
		tenant := g.turns[0]
		g.turns = g.turns[1:]
		l := g.tenants[tenant]
		if l.inside < g.perTenant {
			close(l.waiting[0])
			l.waiting = l.waiting[1:]
			l.inside++
			g.inside++
			passed = 0
		} else {
			passed++
		}
		if len(l.waiting) > 0 {
			g.turns = append(g.turns, tenant)
		}
	}
}

func (g *gate) leave(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.tenants[tenant].inside--
	g.admit()
	g.forget(tenant)
}

// giveUp takes a ticket back, unless it was used.
func (g *gate) giveUp(tenant string, ticket chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.tenants[tenant]
	for i, t := range l.waiting {
		if t != ticket {
			continue
		}
		l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
		if len(l.waiting) == 0 {
			for j, name := range g.turns {
				if name == tenant {
					g.turns = append(g.turns[:j], g.turns[j+1:]...)
					break
				}
			}
		}
		g.forget(tenant)
		return true
	}
	return false
}

// forget drops a tenant that is neither inside nor waiting. The caller holds mu.
func (g *gate) forget(tenant string) {
	if l := g.tenants[tenant]; l != nil && l.inside == 0 && len(l.waiting) == 0 {
		delete(g.tenants, tenant)
	}
}
