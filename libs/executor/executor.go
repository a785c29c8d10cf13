// Package executor is the one gate in front of every effect: it reads what an admission rests on, verifies the
// permit, and appends the outcome before anybody sees it. Broker, runtime and environments act through it.
package executor

import (
	"context"
	"crypto/ed25519"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/claim"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/key"
)

// Gate admits calls of one route to this process.
type Gate struct {
	route   call.Route
	conn    *bus.Conn
	log     *eventlog.Log
	keys    *permit.Keyring
	flights *flights
	now     func() time.Time

	hearing   hearing // of cancellations
	own       own
	questions questions

	// Set before the first Accept.
	view   *eventlog.View
	claims *claim.Claims
}

// New makes a gate. Apply fills it from the control stream.
func New(route call.Route, conn *bus.Conn, log *eventlog.Log, root ed25519.PublicKey) *Gate {
	return &Gate{route: route, conn: conn, log: log, keys: permit.NewKeyring(root), flights: newFlights(), now: time.Now}
}

// Follow names the view whose events are given to Apply.
func (g *Gate) Follow(v *eventlog.View) { g.view = v }

// OpenClaims opens the claims of this life of the process: after a restart, what this instance had claimed is taken
// over like anybody else's.
func (g *Gate) OpenClaims(ctx context.Context) (err error) {
	g.claims, err = claim.Open(ctx, g.conn, string(id.New[id.Event]()))
	return err
}

// Kinds lists what Apply takes.
func Kinds() []string { return append(standing.Kinds(), key.Published{}.Kind()) }

// Apply takes published keys, and what calls rest on.
func (g *Gate) Apply(s eventlog.Stored) error {
	g.flights.apply(s)
	if s.At.Kind() != (key.Published{}).Kind() {
		return nil
	}
	ev, err := eventlog.Decode[key.Published](s)
	if err != nil {
		return nil // of a version that this program does not know
	}
	return g.keys.Add(ev)
}

// Work is a verified admission, ready to be acted on.
type Work struct {
	Tenant      id.Tenant
	Requested   call.Requested // with the arguments to act on: those that a person put in the place of the caller's, if one did
	Admitted    call.Admitted
	Seq         uint64 // of the admission
	Permit      permit.Claims
	Correlation string // of the trace that the call belongs to
	cause       id.Event
	asked       time.Time // when the call was requested
	said        *tally
}

// Accept verifies an admission as it is heard. It gives nil work and no error when there is nothing (more) to do: the
// call has its outcome, or this admission is not the call's first. An error of code unavailable means not yet; any
// other is the call's outcome, and Refuse says it.
func (g *Gate) Accept(ctx context.Context, h bus.Heard) (*Work, error) {
	admitted, ok := h.Event.(call.Admitted)
	if !ok {
		return nil, nil
	}
	w := &Work{said: &tally{}, Tenant: h.At.Tenant, Admitted: admitted, Seq: h.Seq, Correlation: h.Envelope.Correlation, cause: h.Envelope.ID}
	if err := g.view.Current(); err != nil {
		return nil, err
	}
	// The decision saw the control stream up to here; so must whoever acts on it.
	wait, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := g.view.Wait(wait, admitted.Control); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "this instance is behind the decision")
	}
	if m, ok := g.own.take(admitted.Call, h, g.now()); ok {
		w.Requested, w.asked, w.Admitted, w.Permit = m.Requested, m.Asked, m.Admitted, m.Permit
		return w, nil
	}
	state, err := calls.Read(ctx, g.log, w.Tenant, admitted.Run, admitted.Call, admitted.Requested)
	if err != nil {
		return nil, err
	}
	if state.Outcome != nil || state.AdmittedSeq != h.Seq {
		return nil, nil
	}
	if state.Requested == nil || state.RequestedSeq != admitted.Requested {
		return w, problem.New(problem.Denied, "the admission names a request that is not there")
	}
	w.Requested, w.asked = *state.Requested, state.RequestedAt
	if state.Admitted.Edited != 0 {
		// A person edited the arguments. Those in the admission are acted on; the permit says whether they are the right
		// ones. Not those of the event as heard: a large body is put back only where it is read.
		w.Requested.Body = state.Admitted.Body
		w.Requested.ArgsDigest = permit.ArgsDigest(w.Requested.Body)
	}
	if w.Permit, err = g.verify(ctx, w); err != nil {
		return w, err
	}
	if err := w.Permit.Covers(w.Tenant, w.Requested, admitted.Requested); err != nil {
		return w, err
	}
	// The event alone names the grants that a revocation is matched with, and how much of the control stream to wait
	// for; only the permit's word on both is signed.
	if w.Permit.Grant != admitted.Grant || w.Permit.Control != admitted.Control || w.Permit.Tool != admitted.Tool || w.Permit.Lent != admitted.Lent {
		return w, problem.New(problem.Denied, "the admission is not what its permit says")
	}
	if digest := permit.ArgsDigest(w.Requested.Body); digest != w.Permit.ArgsDigest {
		return w, problem.New(problem.Denied, "the arguments are not those that were admitted")
	}
	return w, nil
}

// Underway reads a call of another route that its executor carries out now, for whoever has a part in that. Problems:
// denied when it was not admitted, or has its outcome.
func (g *Gate) Underway(ctx context.Context, tenant id.Tenant, run id.Run, c id.Call, requested uint64, route call.Route) (*Work, error) {
	if err := g.view.Current(); err != nil {
		return nil, err
	}
	state, err := calls.Read(ctx, g.log, tenant, run, c, requested)
	switch {
	case err != nil:
		return nil, err
	case state.Requested == nil || state.RequestedSeq != requested || state.Admitted == nil || state.Admitted.Route != route:
		return nil, problem.New(problem.Denied, "there is no such call that was admitted")
	case state.Outcome != nil:
		return nil, problem.New(problem.Denied, "the call has ended")
	}
	w := &Work{Tenant: tenant, Requested: *state.Requested, Admitted: *state.Admitted, Seq: state.AdmittedSeq, asked: state.RequestedAt}
	if w.Admitted.Edited != 0 {
		w.Requested.Body, w.Requested.ArgsDigest = w.Admitted.Body, permit.ArgsDigest(w.Admitted.Body)
	}
	// It was good when the executor began; that its time is over since is no matter.
	if w.Permit, err = g.keys.Verify(w.Admitted.Permit, route, g.now()); err != nil && problem.CodeOf(err) != problem.Expired {
		return nil, err
	}
	if err := w.Permit.Covers(tenant, w.Requested, requested); err != nil {
		return nil, err
	}
	if w.Permit.Grant != w.Admitted.Grant || w.Permit.Lent != w.Admitted.Lent || permit.ArgsDigest(w.Requested.Body) != w.Permit.ArgsDigest {
		return nil, problem.New(problem.Denied, "the admission is not what its permit says")
	}
	return w, nil
}

// Take is Accept for whoever acts on the work: an admission that does not hold is refused here, and leaves nil work and
// no error too.
func (g *Gate) Take(ctx context.Context, h bus.Heard) (*Work, error) {
	w, err := g.Accept(ctx, h)
	switch {
	case err == nil:
		return w, nil
	case w == nil || Later(err):
		return nil, err
	}
	return nil, g.Refuse(ctx, w, err)
}

// verify checks the permit. One whose time is over is still good for a call that was claimed in time: the effect may
// have happened, and only going on finds that out.
func (g *Gate) verify(ctx context.Context, w *Work) (permit.Claims, error) {
	p, err := g.keys.Verify(w.Admitted.Permit, g.route, g.now())
	if problem.CodeOf(err) != problem.Expired || g.claims == nil {
		return p, err
	}
	claimed, claimErr := g.claims.Taken(ctx, w.Tenant, w.Admitted.Call)
	switch {
	case claimErr != nil:
		return p, claimErr
	case !claimed:
		return p, err
	}
	return p, nil
}

// Stands says whether what an admission rested on is there still, as far as this process has heard.
func (g *Gate) Stands(tenant id.Tenant, a call.Admitted) bool {
	both := func(tool string, under id.Grant) bool {
		connection, _, _ := strings.Cut(tool, ".")
		return g.flights.standing.Stands(thing{Tenant: tenant, ID: string(under)}) && !g.flights.standing.Gone(thing{Tenant: tenant, ID: "con_" + connection})
	}
	return both(a.Tool, a.Grant) && (a.Lent == call.Lent{} || both(a.Lent.Tool, a.Lent.Grant))
}

// Claim claims the call. Problems: busy while another owner holds it.
func (g *Gate) Claim(ctx context.Context, w *Work) (*claim.Held, error) {
	return g.claims.Take(ctx, w.Tenant, w.Admitted.Call, w.Seq)
}

// Claimed says whether anybody ever claimed the call, so that its effect may have happened.
func (g *Gate) Claimed(ctx context.Context, w *Work) (bool, error) {
	return g.claims.Taken(ctx, w.Tenant, w.Admitted.Call)
}

// Settle appends the outcome of a call, then tells whoever waits. It returns when the outcome is durable; until then
// nobody has seen the result. A crash before that makes the next owner find out what happened; a crash after it, in
// front of the hint, costs the waiter a poll.
func (g *Gate) Settle(ctx context.Context, w *Work, outcome schemas.Event) error {
	seq, err := g.log.Append(ctx, eventlog.Draft{
		Event: outcome, Tenant: w.Tenant, Key: string(w.Admitted.Run), Run: w.Admitted.Run, Route: g.route,
		Actor: "service:" + g.conn.User(), Causation: w.cause, Correlation: w.Correlation,
		ID: id.Derive[id.Event](string(w.Tenant), string(w.Admitted.Call), outcome.Kind()),
	})
	if err != nil {
		return err
	}
	g.conn.SendHint(w.Requested.Hint, bus.Hint{Call: w.Admitted.Call, Seq: seq, Said: w.said.count()})
	return nil
}

// Refuse settles a call that could not be acted on, without effect.
func (g *Gate) Refuse(ctx context.Context, w *Work, why error) error {
	d := problem.DetailOf(why)
	return g.Settle(ctx, w, call.Failed{Call: w.Admitted.Call, Run: w.Admitted.Run, Tool: w.Admitted.Tool, Code: string(d.Code), Message: d.Message})
}

// Later says whether an error of Accept is one to try again on rather than the call's outcome.
func Later(err error) bool {
	switch problem.CodeOf(err) {
	case problem.Unavailable, problem.Timeout, problem.Busy, problem.Cancelled, problem.Pending, problem.AuditUnavailable:
		return true
	}
	return false
}
