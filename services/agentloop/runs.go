package agentloop

import (
	"container/list"
	"context"
	"sync"

	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/agentloop/internal/loop"
)

// maxCached is how many runs' states are kept in memory. A run that is not is folded from its first event.
const maxCached = 1024

// runs keeps the folded states of recent runs. It is a cache: the log is the truth, and a state is brought up to it
// at each use.
type runs struct {
	log *eventlog.Log

	mu     sync.Mutex
	byKey  map[runKey]*list.Element
	recent *list.List // of *cached, the most recently used first
}

type runKey struct {
	tenant id.Tenant
	run    id.Run
}

type cached struct {
	key   runKey
	mu    sync.Mutex // held while the state is brought up to date and decided on
	state *loop.State
}

func newRuns(log *eventlog.Log) *runs {
	return &runs{log: log, byKey: map[runKey]*list.Element{}, recent: list.New()}
}

// use brings a run's state up to the log and lets decide look at it, one at a time per run.
func (r *runs) use(ctx context.Context, tenant id.Tenant, run id.Run, decide func(*loop.State) error) error {
	c := r.entry(runKey{tenant, run})
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := r.refresh(ctx, c); err != nil {
		return err
	}
	return decide(c.state)
}

func (r *runs) entry(k runKey) *cached {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.byKey[k]; ok {
		r.recent.MoveToFront(e)
		return e.Value.(*cached)
	}
	c := &cached{key: k, state: loop.New()}
	r.byKey[k] = r.recent.PushFront(c)
	for r.recent.Len() > maxCached {
		oldest := r.recent.Back()
		delete(r.byKey, oldest.Value.(*cached).key)
		r.recent.Remove(oldest)
	}
	return c
}

func (r *runs) refresh(ctx context.Context, c *cached) error {
	s := c.state
	own := schemas.SubjectOf(c.key.tenant, "run.created", string(c.key.run), "").Filter()
	for e, err := range r.log.Read(ctx, schemas.Activity, own, s.RunSeq+1) {
		if err != nil {
			return err
		}
		if ev, err := e.Envelope.Decode(); err == nil {
			s.Apply(e.Seq, ev)
		}
	}
	for e, err := range r.log.Read(ctx, schemas.Activity, calls.Filter(c.key.tenant, c.key.run), s.CallSeq+1) {
		if err != nil {
			return err
		}
		if ev, err := e.Envelope.Decode(); err == nil {
			s.ApplyCall(e.Seq, ev)
		}
	}
	return nil
}
