package toolbroker

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/toolbroker/internal/counter"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// onRequested decides a call for the first time.
func (s *Service) onRequested(ctx context.Context, h bus.Heard) error {
	r, ok := h.Event.(call.Requested)
	if !ok {
		return nil
	}
	if h.Envelope.BodyBlob != "" {
		envelope, err := s.deps.Log.Restored(ctx, h.Envelope)
		if err != nil {
			return err
		}
		if r, err = eventlog.Decode[call.Requested](eventlog.Stored{Seq: h.Seq, Envelope: envelope}); err != nil {
			return bus.Undecodable(err)
		}
	}
	if _, err := id.Parse[id.Call](string(r.Call)); err != nil || string(r.Run) != h.At.Key {
		return bus.Undecodable(errors.New("the request names no call, or is about another run than its subject"))
	}
	if h.Again() {
		// Heard before: the decision may be stored already, and the first one counts.
		state, err := calls.Read(ctx, s.deps.Log, h.At.Tenant, r.Run, r.Call, h.Seq)
		if err != nil || state.Decided() {
			return err
		}
	}
	q := question{tenant: h.At.Tenant, request: r, seq: h.Seq, cause: h.Envelope.ID, correlation: h.Envelope.Correlation}
	if !h.Again() {
		q.asked = h.Envelope.Time
	}
	return s.decide(ctx, q)
}

// onApproval decides a held call again, now that a person decided or nobody did in time.
func (s *Service) onApproval(ctx context.Context, h bus.Heard) error {
	a := question{tenant: h.At.Tenant, cause: h.Envelope.ID, correlation: h.Envelope.Correlation}
	var run id.Run
	var c id.Call
	switch ev := h.Event.(type) {
	case approval.Decided:
		run, c, a.seq, a.approval = ev.Run, ev.Call, ev.Requested, ev.Approval
		if ev.Approved {
			a.approved, a.edited, a.forRun = ev.Digest, ev.Edited, ev.ForRun
		} else {
			a.refusal = problem.New(problem.Denied, "%s said no", ev.By)
		}
	case approval.Expired:
		run, c, a.seq, a.approval = ev.Run, ev.Call, ev.Requested, ev.Approval
		switch ev.Reason {
		case "":
			a.refusal = problem.New(problem.Expired, "nobody approved it in time")
		case approval.Withdrawn:
			a.refusal = problem.New(problem.Cancelled, "%s while it waited for approval", ev.Reason)
		default:
			a.refusal = problem.New(problem.Denied, "%s while it waited for approval", ev.Reason)
		}
	default:
		return nil
	}
	state, err := calls.Read(ctx, s.deps.Log, a.tenant, run, c, a.seq)
	if err != nil {
		return err
	}
	if state.Requested == nil || state.RequestedSeq != a.seq || state.Held == nil || state.Settled() {
		return nil // not a call that waits for this
	}
	if a.refusal == nil {
		over, err := standing.RunCancelled(ctx, s.deps.Log, a.tenant, run)
		if err != nil {
			return err
		}
		if over {
			a.refusal = problem.New(problem.Cancelled, "the run was cancelled before the call was approved")
		}
	}
	if a.approved != "" {
		a.quorum, a.approver = max(state.Held.Quorum, 1), state.Held.Approver
		var until time.Time
		if a.voters, until, err = s.voters(ctx, a.tenant, a.approval, a.approved); err != nil {
			return err
		}
		if a.refusal == nil && !until.IsZero() && s.now().After(until) { // the broker was away for long
			a.refusal = problem.New(problem.Expired, "it was approved, and the approval expired before the call could be made; ask again")
		}
	}
	a.request = *state.Requested
	a.request.NotAfter = time.Time{} // waiting for a person does not count
	if a.edited != 0 {
		if err := s.takeEdit(ctx, &a); err != nil {
			return err
		}
	}
	return s.decide(ctx, a)
}

// takeEdit puts the arguments that a person edited in the place of those that were asked for, if the decision is about
// them. Where the grant asks for an approval, their digest is not taken on trust: the decision that follows computes it.
func (s *Service) takeEdit(ctx context.Context, a *question) error {
	stored, err := s.deps.Log.ReadAt(ctx, schemas.Activity, a.edited)
	if err != nil && problem.CodeOf(err) != problem.NotFound {
		return err
	}
	edit, err := eventlog.Decode[approval.Edited](stored)
	if err != nil || stored.At.Tenant != a.tenant || stored.At.Key != string(a.approval) || edit.Call != a.request.Call || edit.Digest != a.approved {
		a.refusal = problem.New(problem.Conflict, "the decision names an edit that is not of this call, or that it is not about; ask again")
		return nil
	}
	a.request.Body.Args = edit.Body.Args // what was answered to the server stays, and was part of what they approved
	a.request.ArgsDigest = permit.ArgsDigest(a.request.Body)
	a.quorum, a.approver = max(edit.Quorum, 1), edit.Approver // of the grant that the edited arguments fall under
	return nil
}

// question is one call at the moment of its decision.
type question struct {
	tenant      id.Tenant
	request     call.Requested
	seq         uint64    // of the request
	asked       time.Time // when, if it is heard for the first time; zero: it may have been decided before
	cause       id.Event
	correlation string
	approval    id.Approval
	edited      uint64         // the approval.edited that request's arguments are from; zero: its own
	approved    string         // the digest that was approved
	voters      []id.Member    // who approved it
	quorum      int            // how many of them have to be members still
	approver    member.Role    // the role that each of them needs; empty: any that may approve
	forRun      bool           // and later calls of the run like it
	refusal     *problem.Error // what a person, or the clock, decided already
}

func (s *Service) decide(ctx context.Context, a question) error {
	if err := s.view.Current(); err != nil {
		return err // a revocation might be among what was missed
	}
	control := s.view.Seq() // before the state is read: the decision saw at least this
	r := a.request
	var k knowledge
	d := policy.Decision{Verdict: policy.Refuse}
	earlier := s.approvedEarlier(ctx, a.tenant, r.Run)
	args, input, err := s.canonical(a.tenant, r)
	enough, granting := s.standing(a)
	switch {
	case a.approved != "" && !enough:
		d.Code, d.Reason = problem.Denied, "too few of those who approved it may approve it still"
	case a.refusal != nil:
		d.Code, d.Reason = a.refusal.Code, a.refusal.Message
	case err != nil:
		d.Code, d.Reason = problem.CodeOf(err), problem.DetailOf(err).Message
	case permit.ArgsDigest(r.Body) != r.ArgsDigest:
		d.Code, d.Reason = problem.Invalid, "the arguments do not have the digest that the request names"
	default:
		k = s.knowledge(a.tenant, r.Agent, r.Tool, args)
		d = s.judge(k, policy.Request{Run: r.Run, Args: args, Input: input, Tainted: len(r.Taint) > 0, NotAfter: r.NotAfter, Approved: a.approved, Before: earlier.under, Passed: earlier.forRun})
	}
	if err := earlier.failed(); err != nil {
		return err
	}
	for _, g := range []*policy.Grant{d.Grant, d.Lent} {
		if d.Verdict != policy.Admit || k.Tool.Folded || g == nil || g.Limits == (grant.Limits{}) {
			continue
		}
		reached, err := s.counters.Reserve(ctx, counter.Call{Tenant: a.tenant, Grant: g.Created.Grant, Run: r.Run, Call: r.Call, Seq: a.seq}, g.Limits)
		if err != nil {
			return err
		}
		if reached != "" {
			d.Verdict, d.Code, d.Reason = policy.Refuse, problem.Busy, reached
		}
	}
	lent := k.lentBy(d)
	var ev schemas.Event
	var made executor.Made
	draft := eventlog.Draft{Tenant: a.tenant, Key: string(r.Run), Run: r.Run, Actor: actor, Causation: a.cause, Correlation: a.correlation}
	switch d.Verdict {
	case policy.Admit:
		claims, text, err := s.sign(ctx, a, d, lent, k.Tool.Route, control)
		if err != nil {
			return err
		}
		draft.Route = k.Tool.Route
		admitted := call.Admitted{Call: r.Call, Run: r.Run, Tool: r.Tool, Route: k.Tool.Route, Grant: d.GrantID(), Lent: lent, Approval: a.approval,
			Requested: a.seq, Control: control, Permit: text, Edited: a.edited}
		if a.edited != 0 {
			admitted.Body = r.Body
		}
		if a.forRun && granting && d.Asked { // what nobody had to approve was approved for itself
			// Later calls find it here. A crash before this is stored leaves them held, as the call itself is.
			admitted.ForRun = k.scope(d, args, len(r.Taint) > 0)
		}
		ev, made = admitted, executor.Made{Tenant: a.tenant, Requested: r, Asked: a.asked, Admitted: admitted, Permit: claims}
	case policy.Hold:
		held := call.Held{Call: r.Call, Run: r.Run, Agent: r.Agent, Tool: r.Tool, Grant: d.GrantID(), Lent: lent, Digest: d.Digest, Reason: d.Reason, Requested: a.seq, Control: control}
		held.Quorum, held.Approver, held.FourEyes, held.EscalateAfter = d.Rule()
		ev = held
	default:
		ev = call.Refused{Call: r.Call, Run: r.Run, Tool: r.Tool, Grant: d.GrantID(), Lent: lent, Approval: a.approval, Code: string(d.Code), Reason: d.Reason, Control: control}
	}
	s.metrics.decisions.WithLabelValues(ev.Kind()).Inc()
	draft.Event = ev
	// One decision has one id per stage, whatever it is: a second hearing within the deduplication window stores
	// nothing new, and later the reader of the call takes the first.
	draft.ID = id.Derive[id.Event](string(a.tenant), string(r.Call), "decision", string(a.approval))
	seq, first, err := s.deps.Log.AppendFirst(ctx, draft)
	if err != nil {
		return err
	}
	if first && !a.asked.IsZero() && made.Admitted.Route == call.Upstream { // it is this process's own, and on its way back here
		made.Seq = seq
		s.gate.Made(made)
	}
	if d.Verdict == policy.Refuse {
		s.deps.Conn.SendHint(r.Hint, bus.Hint{Call: r.Call, Seq: seq})
	}
	return nil
}

// canonical reads what a call is made with. Answers to what a server asked are for tools of MCP servers: nobody else would
// read them, so nobody else is to be thought to have.
func (s *Service) canonical(tenant id.Tenant, r call.Requested) (args, input json.RawMessage, err error) {
	if args, err = permit.CanonicalArgs(r.Body.Args); err != nil || len(r.Body.Input) == 0 {
		return args, nil, err
	}
	if def, ok := s.state.Connection(tenant, connectionOf(r.Tool)); !ok || def.Type != connection.MCP || r.Client == nil {
		return nil, nil, problem.New(problem.Invalid, "%.200s asks nobody anything, so there is nothing to answer it (inputResponses, requestState)", r.Tool)
	}
	input, err = permit.CanonicalInput(r.Body.Input)
	return args, input, err
}

// approved is what members approved in a run before. It reads the run only when a grant's rule asks, and then once.
type approved struct {
	under  func(id.Grant) bool // a call, under the grant
	forRun func(scope string) bool
	failed func() error
}

func (s *Service) approvedEarlier(ctx context.Context, tenant id.Tenant, run id.Run) approved {
	var failed error
	var grants map[id.Grant]bool
	var scopes map[string]bool
	read := sync.OnceFunc(func() {
		grants, scopes = map[id.Grant]bool{}, map[string]bool{}
		for e, err := range s.deps.Log.Read(ctx, schemas.Activity, calls.Filter(tenant, run), 1) {
			if err != nil {
				failed = err
				return
			}
			if ev, err := eventlog.Decode[call.Admitted](e); err == nil && ev.Approval != "" {
				grants[ev.Grant], grants[ev.Lent.Grant] = true, true
				if ev.ForRun != "" {
					scopes[ev.ForRun] = true
				}
			}
		}
	})
	return approved{
		under:  func(g id.Grant) bool { read(); return failed == nil && grants[g] },
		forRun: func(scope string) bool { read(); return failed == nil && scopes[scope] },
		failed: func() error { return failed },
	}
}

func (s *Service) sign(ctx context.Context, a question, d policy.Decision, lent call.Lent, route call.Route, control uint64) (claims permit.Claims, text string, err error) {
	now := s.now().UTC()
	claims = permit.Claims{
		Audience: route, Tenant: a.tenant, Run: a.request.Run, Call: a.request.Call, Tool: a.request.Tool,
		ArgsDigest: a.request.ArgsDigest, Grant: d.GrantID(), Requested: a.seq, Control: control, Lent: lent,
		IssuedAt: now, ExpiresAt: now.Add(s.cfg.PermitLife),
	}
	if route == call.Exec {
		v, ok, err := s.attached(ctx, a.tenant, a.request.Agent, a.request.Run)
		if err != nil {
			return claims, "", err
		}
		if ok {
			claims.Attachment, claims.Epoch = v.Attached.Attachment, v.Epoch
		}
	}
	text, err = s.signer.Sign(claims)
	return claims, text, err
}

// listTries is how often a connection that does not answer is asked at once, over about a minute. After that it is asked
// with all others, every so often: a server that is gone for days holds no message.
const listTries = 10

// onConnection looks at what a connection offers, when it is defined or changed. What counts is how it is defined by
// now: this may be heard again long after.
func (s *Service) onConnection(ctx context.Context, h bus.Heard) error {
	def, ok := h.Event.(connection.Defined)
	if !ok {
		return nil
	}
	if def.Removed {
		return s.disconnect(ctx, h, def)
	}
	if err := s.view.Wait(ctx, h.Seq); err != nil {
		return err
	}
	now, ok := s.state.Connection(h.At.Tenant, id.Name(def.Connection))
	if !ok || !reflect.DeepEqual(now, def) {
		return nil // the event that says so is heard too
	}
	err := s.list(ctx, h.At.Tenant, def.Connection, h.Envelope.ID)
	if err != nil && ctx.Err() == nil && h.Deliveries >= listTries {
		s.log.WarnContext(ctx, "a connection does not list its tools; it is asked again with the others", "tenant", h.At.Tenant, "connection", def.Connection, "err", err)
		return nil
	}
	return err
}

// onUndecodable answers whoever waits for a request that cannot be decoded, as far as it says who that is.
func (s *Service) onUndecodable(ctx context.Context, at schemas.Subject, raw []byte, _ error) error {
	if at.Kind() != (call.Requested{}).Kind() {
		return nil
	}
	var e struct {
		Data struct {
			Call string `json:"call"`
			Tool string `json:"tool"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil
	}
	c, err := id.Parse[id.Call](e.Data.Call)
	if err != nil {
		return nil
	}
	run, err := id.ParseRun(at.Key)
	if err != nil {
		return nil
	}
	_, err = s.deps.Log.Append(ctx, eventlog.Draft{Tenant: at.Tenant, Key: at.Key, Run: run, Route: call.Upstream, Actor: actor,
		ID: id.Derive[id.Event](string(at.Tenant), string(c), "undecodable"),
		Event: call.Failed{Call: c, Run: run, Tool: e.Data.Tool, Code: string(problem.Invalid),
			Message: "the request could not be decoded; it is kept in EW_DLQ"}})
	return err
}
