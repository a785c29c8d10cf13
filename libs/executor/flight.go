package executor

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// Revoked is the reason of a call that ended because its grant was revoked.
const Revoked = "the grant was revoked"

// The causes of a call's context when what allowed or wanted it is no more.
var (
	errRevoked = problem.New(problem.Denied, Revoked)
	errRemoved = problem.New(problem.Denied, "the agent or the connection was removed")
	errRunEnds = problem.New(problem.Cancelled, "the run was cancelled")
)

// Stopped says why a context ended, when that is because what allowed or wanted the call is no more; "" otherwise.
func Stopped(ctx context.Context) string {
	for _, why := range []*problem.Error{errRevoked, errRemoved, errRunEnds} {
		if errors.Is(context.Cause(ctx), why) {
			return why.Message
		}
	}
	return ""
}

// Enter notes that this process acts on a call. Its context ends when the grant is revoked or the run cancelled. Problems: denied when it
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
	under      grantKey
	run        id.Run
	agent      id.Agent
	connection id.Connection
	cancel     context.CancelCauseFunc
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
	g.cancel(errRevoked, func(f flight) bool { return f.under == k })
}

// removed cancels what is in flight for an agent, or over a connection, that is no more.
func (g *grants) removed(tenant id.Tenant, a id.Agent, c id.Connection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel(errRemoved, func(f flight) bool {
		return f.under.tenant == tenant && (a != "" && f.agent == a || c != "" && f.connection == c)
	})
}

func (g *grants) cancel(why error, which func(flight) bool) {
	for _, f := range g.flying {
		if which(f) {
			f.cancel(why)
		}
	}
}

// OnRunCancelled hears run.cancelled and stops what this process does for that run. A call that is admitted later has
// its outcome all the same, and no run to use it.
func (g *Gate) OnRunCancelled(_ context.Context, h bus.Heard) error {
	g.grants.cancelRun(h.At.Tenant, id.Run(h.At.Key))
	return nil
}

func (g *grants) cancelRun(tenant id.Tenant, run id.Run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel(errRunEnds, func(f flight) bool { return f.under.tenant == tenant && f.run == run })
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
	name, _, _ := strings.Cut(w.Requested.Tool, ".")
	g.flying[c] = flight{k, w.Admitted.Run, w.Requested.Agent, id.Connection("con_" + name), cancel}
	return ctx, func() {
		g.mu.Lock()
		delete(g.flying, c)
		g.mu.Unlock()
		cancel(nil)
	}, nil
}
