package toolbroker

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/control"
)

// maxListing bounds how many connections are listed at once, and listTimeout each of them: a dead server delays no
// other.
const (
	maxListing  = 8
	listTimeout = 30 * time.Second
)

// maxSoon is how many connections of one tenant are listed at once because they are due: its dead servers delay nobody
// else's.
const maxSoon = 4

// lists holds connections that are to be listed soon, each once. Whoever adds one never waits.
type lists struct {
	mu      sync.Mutex
	due     map[connectionKey]struct{}
	running map[connectionKey]struct{}
	wake    chan struct{}
}

func newLists() *lists {
	return &lists{due: map[connectionKey]struct{}{}, running: map[connectionKey]struct{}{}, wake: make(chan struct{}, 1)}
}

func (l *lists) soon(key connectionKey) {
	l.mu.Lock()
	l.due[key] = struct{}{}
	l.mu.Unlock()
	l.look()
}

func (l *lists) look() {
	select {
	case l.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// take gives those that are due and may be listed now. Each has to be given back with done.
func (l *lists) take() (out []connectionKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[id.Tenant]int{}
	for key := range l.running {
		of[key.tenant]++
	}
	for key := range l.due {
		if _, running := l.running[key]; running || of[key.tenant] >= maxSoon {
			continue
		}
		of[key.tenant]++
		delete(l.due, key)
		l.running[key] = struct{}{}
		out = append(out, key)
	}
	return out
}

func (l *lists) done(key connectionKey) {
	l.mu.Lock()
	delete(l.running, key)
	l.mu.Unlock()
	l.look()
}

// list looks at what a connection offers now, as it is defined now, and says so when it is not what was known.
func (s *Service) list(ctx context.Context, tenant id.Tenant, c id.Connection, cause id.Event) error {
	now, ok := s.state.Connection(tenant, id.Name(c))
	if _, packaged := s.state.Package(tenant, c); !ok || now.Type == connection.API && !packaged {
		return nil // its package is yet to come, and is listed then
	}
	p, def, err := s.providers.provider(tenant, c, "")
	if err != nil {
		s.log.ErrorContext(ctx, "connection cannot be used", "connection", c, "err", err)
		return nil // its definition has to change first
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	tools, err := p.Tools(ctx)
	if problem.CodeOf(err) == problem.Unauthenticated {
		s.log.InfoContext(ctx, "a connection lists its tools when it has its login", "tenant", tenant, "connection", def.Connection)
		return nil // asking again does not help; whoever logs in has it listed
	}
	if err != nil {
		return err
	}
	if now, ok := s.state.Connection(tenant, id.Name(c)); !ok || !reflect.DeepEqual(now, def) {
		return nil // these are another server's tools: whoever heard the new definition lists its own
	}
	before := s.state.Listed(tenant, c)
	tools, changed := changes(def.Type, tools, before, s.now().UTC())
	if !changed {
		return nil
	}
	_, err = s.deps.Log.Append(ctx, eventlog.Draft{Tenant: tenant, Key: string(c), Actor: actor, Causation: cause,
		Event: connection.Listed{Connection: c, Body: connection.Tools{Tools: tools}}})
	return err
}

// changes marks the tools that are described otherwise than before, and says whether anything is. GitHub's tools are
// described by this program: they change with it, and nobody else can pull the rug.
func changes(of connection.Type, now, before []connection.Tool, at time.Time) ([]connection.Tool, bool) {
	changed := len(now) != len(before)
	for i, t := range now {
		j := slices.IndexFunc(before, func(b connection.Tool) bool { return b.Name == t.Name })
		switch {
		case j < 0:
			changed = true
		case t.SameAs(before[j]):
			now[i].ChangedAt = before[j].ChangedAt
		default:
			changed = true
			if of != connection.GitHub {
				now[i].ChangedAt = at
			}
		}
	}
	return now, changed
}

// relist looks at every connection again, at the start and then every so often, until ctx ends: a server may describe
// its tools otherwise at any time, a grant is for what was described when it was made, and this program's own tools
// may be others than those of the version before.
func (s *Service) relist(ctx context.Context) {
	if s.view.Wait(ctx, 0) != nil {
		return // ctx ended first
	}
	ticker := time.NewTicker(s.cfg.RelistEvery)
	defer ticker.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	// Apart: what changed is not listed behind all those that take their time.
	running.Go(func() { s.relistSoon(ctx) })
	running.Go(func() { s.endLoginsSoon(ctx) })
	for {
		s.relistAll(ctx, s.state.Connections())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// relistSoon lists the connections that are due, as soon as they are.
func (s *Service) relistSoon(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lists.wake:
		}
		for _, key := range s.lists.take() {
			running.Go(func() {
				defer s.lists.done(key)
				s.relistOne(ctx, key)
			})
		}
	}
}

func (s *Service) relistAll(ctx context.Context, all []control.Owned) {
	var group errgroup.Group
	group.SetLimit(maxListing)
	for _, c := range all {
		group.Go(func() error { s.relistOne(ctx, connectionKey{c.Tenant, c.Connection}); return nil })
	}
	_ = group.Wait() // no function of it gives an error
}

func (s *Service) relistOne(ctx context.Context, c connectionKey) {
	if err := s.list(ctx, c.tenant, c.connection, ""); err != nil && ctx.Err() == nil {
		s.log.Warn("a connection does not list its tools", "tenant", c.tenant, "connection", c.connection, "err", err)
	}
}
