package toolbroker

import (
	"encoding/json"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/toolbroker/internal/policy"
)

// knowledge is what a decision on one call rests on. For a machine's tool that a connection lends to, that is what is known
// of both.
type knowledge struct {
	policy.Known
	lends bool
	lent  machine.Lent
	fault error // of its arguments
	there policy.Known
}

func (s *Service) knowledge(tenant id.Tenant, a id.Agent, tool string, args json.RawMessage) knowledge {
	k := knowledge{Known: s.state.Known(tenant, a, tool)}
	if k.lends = machine.Lends(tool); !k.lends {
		return k
	}
	if k.lent, k.fault = machine.LentOf(tool, args); k.fault == nil {
		k.there = s.state.Known(tenant, a, k.lent.Full())
	}
	return k
}

// judge decides a call.
func (s *Service) judge(k knowledge, r policy.Request) policy.Decision {
	switch {
	case !k.lends:
		return policy.Decide(k.Known, r, &s.conditions, s.now())
	case k.fault != nil:
		return policy.Decision{Verdict: policy.Refuse, Code: problem.Invalid, Reason: k.fault.Error()}
	}
	return policy.DecideLent(k.Known, k.there, r, k.lent.Args, &s.conditions, s.now())
}

// lentBy is what an event says of what a connection lends.
func (k knowledge) lentBy(d policy.Decision) call.Lent {
	if !k.lends || k.fault != nil {
		return call.Lent{}
	}
	return call.Lent{Tool: k.lent.Full(), Grant: d.LentID()}
}

// scope is what an approval of the call for the rest of the run is about.
func (k knowledge) scope(d policy.Decision, args json.RawMessage, tainted bool) string {
	if d.Lent == nil {
		return policy.Scope(*d.Grant, *k.Tool, args, tainted)
	}
	return policy.LentScope(*d.Grant, *k.Tool, args, *d.Lent, *k.there.Tool, k.lent.Args, tainted)
}
