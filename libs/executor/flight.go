package executor

import (
	"context"
	"errors"
	"sync"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// errRevoked is the cause of a call's context when its grant was revoked.
var errRevoked = problem.New(problem.Denied, "the grant was revoked")

// Revoked says whether a context ended because the call's grant was revoked.
func Revoked(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errRevoked) }

// Enter notes that this process acts on a call. Its context ends when the grant is revoked. Problems: denied when it
// is revoked already, busy when this process acts on the call already.
func (g *Gate) Enter(ctx context.Context, w *Work) (context.Context, func(), error) {
	return g.grants.enter(ctx, w)
}

// grants knows which grants are active and which calls are in flight under them, so that a revocation reaches every
// one: a call either finds its grant revoked when it enters, or is there to be cancelled.
type grants struct {
	mu     sync.Mutex
	state  map[grantKey]grantState
	flying map[id.Call]flight
}

type grantKey struct {
	tenant id.Tenant
	grant  id.Grant
}

type grantState struct {
	seq    uint64
	active bool
}

type flight struct {
	under  grantKey
	cancel context.CancelCauseFunc
}

func newGrants() *grants {
	return &grants{state: map[grantKey]grantState{}, flying: map[id.Call]flight{}}
}

func (g *grants) set(tenant id.Tenant, grant id.Grant, seq uint64, active bool) {
	k := grantKey{tenant, grant}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state[k].seq >= seq {
		return
	}
	g.state[k] = grantState{seq, active}
	if active {
		return
	}
	for _, f := range g.flying {
		if f.under == k {
			f.cancel(errRevoked)
		}
	}
}

func (g *grants) enter(ctx context.Context, w *Work) (context.Context, func(), error) {
	k, c := grantKey{w.Tenant, w.Admitted.Grant}, w.Admitted.Call
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.state[k].active {
		return nil, nil, errRevoked
	}
	if _, twice := g.flying[c]; twice {
		return nil, nil, problem.New(problem.Busy, "%s is being acted on already", c)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	g.flying[c] = flight{k, cancel}
	return ctx, func() {
		g.mu.Lock()
		delete(g.flying, c)
		g.mu.Unlock()
		cancel(nil)
	}, nil
}
