package executor

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// Revoked is the reason of a call that ended because its grant was revoked.
const Revoked = "the grant was revoked"

// The causes of a call's end when what allowed or wanted it is no more.
var (
	errRevoked = problem.New(problem.Denied, Revoked)
	errRemoved = problem.New(problem.Denied, "the agent or the connection was removed")
	errRunEnds = problem.New(problem.Cancelled, "the run was cancelled")
	errGivenUp = problem.New(problem.Cancelled, "the client gave the call up")
)

// Stopped says why a context ended, when that is because what allowed or wanted the call is no more; "" otherwise.
func Stopped(ctx context.Context) string { return StoppedBy(context.Cause(ctx)) }

// StoppedBy says why Enter let nobody in, when that is because what allowed or wanted the call is no more; ""
// otherwise.
func StoppedBy(err error) string {
	for _, why := range []*problem.Error{errRevoked, errRemoved, errRunEnds, errGivenUp} {
		if errors.Is(err, why) {
			return why.Message
		}
	}
	return ""
}

// Enter notes that this process acts on a call. Its context ends when the grant is revoked, the agent or the connection
// removed, or the run cancelled; when that is so already, StoppedBy says it of the error. Problems: busy when this
// process acts on the call already, unavailable when it is not current: what was accepted a while ago may be revoked by now.
func (g *Gate) Enter(ctx context.Context, w *Work) (context.Context, func(), error) {
	if !g.hearing.had(g.conn, w.asked) {
		over, err := standing.RunCancelled(ctx, g.log, w.Tenant, w.Admitted.Run)
		if err != nil {
			return nil, nil, err
		}
		if over {
			return nil, nil, errRunEnds
		}
	}
	if err := g.view.Current(); err != nil {
		return nil, nil, err
	}
	return g.flights.enter(ctx, w)
}

// flights knows what calls rest on and which are in flight, so that an end reaches every one: a call either finds what
// it rests on gone when it enters, or is there to be cancelled.
type flights struct {
	standing  standing.Set
	mu        sync.Mutex
	cancelled map[thing]struct{} // the runs that were cancelled last
	oldest    []thing            // the same, in order
	flying    map[id.Call]flight
}

// maxCancelled is how many cancelled runs are remembered: those of far more time than passes between a cancellation and
// the last calls of its run.
const maxCancelled = 4096

// thing is what calls rest on, or the run that they are of.
type thing = standing.Thing

type flight struct {
	grant, agent, connection, run thing
	lentGrant, lent               thing // the grant and the connection that lend to the call; zero: none
	swept                         bool  // it was in flight at the last sweep
	cancel                        context.CancelCauseFunc
}

func newFlights() *flights {
	return &flights{cancelled: map[thing]struct{}{}, flying: map[id.Call]flight{}}
}

// apply takes an event of the control stream. What is no more is noted before flights are looked at, and enter looks at it
// while it adds one: so none is missed.
func (f *flights) apply(e eventlog.Stored) {
	t, ended := f.standing.Apply(e)
	if !ended {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(errRevoked, func(x flight) bool { return x.grant == t || x.lentGrant == t })
	f.end(errRemoved, func(x flight) bool { return x.agent == t || x.connection == t || x.lent == t })
}

// cancelRun notes that a run was cancelled.
func (f *flights) cancelRun(run thing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.cancelled[run]; !known {
		if len(f.oldest) == maxCancelled {
			delete(f.cancelled, f.oldest[0])
			f.oldest = f.oldest[1:]
		}
		f.cancelled[run] = struct{}{}
		f.oldest = append(f.oldest, run)
	}
	f.end(errRunEnds, func(x flight) bool { return x.run == run })
}

// giveUp ends a call that its client does not want any more.
func (f *flights) giveUp(tenant id.Tenant, c id.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x, ok := f.flying[c]; ok && x.run.Tenant == tenant {
		x.cancel(errGivenUp)
	}
}

func (f *flights) end(why error, which func(flight) bool) {
	for _, x := range f.flying {
		if which(x) {
			x.cancel(why)
		}
	}
}

func (f *flights) enter(ctx context.Context, w *Work) (context.Context, func(), error) {
	of := func(id string) thing { return thing{Tenant: w.Tenant, ID: id} }
	connection, _, _ := strings.Cut(w.Requested.Tool, ".")
	x := flight{grant: of(string(w.Admitted.Grant)), agent: of(string(w.Requested.Agent)), connection: of("con_" + connection), run: of(string(w.Admitted.Run))}
	if lent := w.Admitted.Lent; lent != (call.Lent{}) {
		name, _, _ := strings.Cut(lent.Tool, ".")
		x.lentGrant, x.lent = of(string(lent.Grant)), of("con_"+name)
	}
	c := w.Admitted.Call
	f.mu.Lock()
	defer f.mu.Unlock()
	_, over := f.cancelled[x.run]
	switch {
	case !f.standing.Stands(x.grant) || x.lentGrant != (thing{}) && !f.standing.Stands(x.lentGrant):
		return nil, nil, errRevoked
	case f.standing.Gone(x.agent) || f.standing.Gone(x.connection) || f.standing.Gone(x.lent):
		return nil, nil, errRemoved
	case over:
		return nil, nil, errRunEnds
	}
	if _, twice := f.flying[c]; twice {
		return nil, nil, problem.New(problem.Busy, "%s is being acted on already", c)
	}
	ctx, x.cancel = context.WithCancelCause(ctx)
	f.flying[c] = x
	return ctx, func() {
		f.mu.Lock()
		delete(f.flying, c)
		f.mu.Unlock()
		x.cancel(nil)
	}, nil
}
