package toolbroker

import (
	"context"
	"slices"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// Bounds of looking ahead.
const (
	maxLookedAt = 20_000 // recorded calls of one simulation
	maxShown    = 200
	maxShownArg = 300
)

// showAccess says what an agent could do, tool by tool, before anything runs, and what would become of planned calls.
func (s *Service) showAccess(_ context.Context, who rpc.Caller, q ask.ShowAccess) (ask.Access, error) {
	if err := s.view.Current(); err != nil {
		return ask.Access{}, err
	}
	known := s.state.Known(who.Tenant, q.Agent, "")
	if known.Agent == nil || known.Agent.Removed {
		return ask.Access{}, problem.New(problem.NotFound, "there is no agent %s", q.Agent)
	}
	out := ask.Access{Agent: *known.Agent, Tools: []ask.Reach{}}
	out.Agent.Body.Instructions = "" // not what is asked, and long
	for _, t := range s.state.Tools(who.Tenant) {
		known.Tool = &t
		reach := policy.Explain(known, "", s.now())
		row := ask.Reach{Tool: t.Full, Effect: t.Effect, Writes: t.Writes, Word: reach.Word, Why: reach.Why}
		for _, r := range reach.Rules {
			row.Rules = append(row.Rules, ask.Rule{Grant: r.Grant, Verdict: r.Verdict, Text: r.Text})
		}
		out.Tools = append(out.Tools, row)
	}
	if len(q.Calls) > ask.MaxPlanned {
		return ask.Access{}, problem.New(problem.Invalid, "%d calls are planned, over %d", len(q.Calls), ask.MaxPlanned)
	}
	for _, c := range q.Calls {
		out.Calls = append(out.Calls, ask.Foreseen{PlannedCall: c, Decision: s.foresee(who.Tenant, q.Agent, c)})
	}
	return out, nil
}

// foresee decides a call that nobody asked for, in a run that has called nothing yet.
func (s *Service) foresee(tenant id.Tenant, a id.Agent, c ask.PlannedCall) ask.SimulatedDecision {
	args, err := permit.CanonicalArgs(c.Args)
	if err != nil {
		d := problem.DetailOf(err)
		return simulated(policy.Decision{Verdict: policy.Refuse, Code: d.Code, Reason: d.Message})
	}
	return simulated(s.judge(s.knowledge(tenant, a, c.Tool, args), policy.Request{Args: args, Tainted: c.Tainted}))
}

// simulateGrant decides recorded calls of the grant's agent once as things are and once with the grant beside, or in
// place of the one that has its name, and shows where the two differ. It changes nothing. Limits are not simulated:
// they depend on what was let through.
func (s *Service) simulateGrant(ctx context.Context, who rpc.Caller, q ask.SimulateGrant) (ask.Simulation, error) {
	if err := s.view.Current(); err != nil {
		return ask.Simulation{}, err
	}
	proposed := policy.Grant{Created: q.Grant, At: s.now()}
	for _, text := range []string{q.Grant.Condition, q.Grant.ApproveWhen} {
		if text == "" {
			continue
		}
		if _, err := s.conditions.Parse(text); err != nil {
			return ask.Simulation{}, err
		}
	}
	out := ask.Simulation{Changed: []ask.SimulatedCall{}}
	filter := schemas.SubjectOf(who.Tenant, call.Requested{}.Kind(), "*", "").String()
	for e, err := range s.deps.Log.ReadSince(ctx, schemas.Activity, filter, q.Since) {
		if err != nil {
			return ask.Simulation{}, err
		}
		r, err := eventlog.Decode[call.Requested](e)
		if err != nil || r.Agent != q.Grant.Agent {
			continue
		}
		if out.Looked++; out.Looked > maxLookedAt {
			out.Truncated = true
			break
		}
		args, input, err := s.canonical(who.Tenant, r)
		if err != nil {
			continue
		}
		k := s.knowledge(who.Tenant, r.Agent, r.Tool, args)
		request := policy.Request{Run: r.Run, Args: args, Input: input, Tainted: len(r.Taint) > 0}
		now := s.judge(k, request)
		k.Grants = append(slices.DeleteFunc(slices.Clone(k.Grants), func(g policy.Grant) bool { return g.Created.Grant == q.Grant.Grant }), proposed)
		k.there.Grants = k.Grants // they are one agent's
		then := s.judge(k, request)
		if now.Verdict == then.Verdict && now.GrantID() == then.GrantID() && now.LentID() == then.LentID() {
			continue
		}
		out.Differ++
		if len(out.Changed) < maxShown {
			text := string(args)
			out.Changed = append(out.Changed, ask.SimulatedCall{Call: r.Call, Run: r.Run, Tool: r.Tool, At: e.Envelope.Time,
				Args: text[:min(len(text), maxShownArg)], Now: simulated(now), Then: simulated(then)})
		}
	}
	return out, nil
}

func simulated(d policy.Decision) ask.SimulatedDecision {
	word := map[policy.Verdict]string{policy.Admit: "allowed", policy.Hold: "held", policy.Refuse: "refused"}[d.Verdict]
	return ask.SimulatedDecision{Word: word, Grant: d.GrantID(), Reason: d.Reason}
}
