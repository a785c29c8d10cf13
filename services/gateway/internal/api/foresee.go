package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// maxSimulated is how far back a simulation may look: events are kept no longer.
const maxSimulated = 30 * 24 * time.Hour

// simulationInput is a grant that nobody made yet, and the past to hold it against.
type simulationInput struct {
	grant.Created
	Since time.Time `json:"since"`
}

func (a *API) simulateGrant(r *http.Request, who auth.Identity, body []byte) (ask.Simulation, error) {
	name, err := named[id.Grant](r)
	if err != nil {
		return ask.Simulation{}, err
	}
	in, err := read[simulationInput](r, body)
	if err != nil {
		return ask.Simulation{}, err
	}
	if in.Grant, err = same(name, in.Grant); err != nil {
		return ask.Simulation{}, err
	}
	if in.Agent, err = refer[id.Agent](string(in.Agent)); err != nil {
		return ask.Simulation{}, err
	}
	if now := time.Now(); in.Since.After(now) || in.Since.Before(now.Add(-maxSimulated)) {
		return ask.Simulation{}, problem.New(problem.Invalid, "since is not within the last 30 days")
	}
	return a.Peers.SimulateGrant(r.Context(), who, ask.SimulateGrant{Grant: in.Created, Since: in.Since})
}

// accessPlan is what an agent could do, with the machine that it would have.
type accessPlan struct {
	ask.Access
	Environment *plannedMachine `json:"environment,omitempty"`
}

type plannedMachine struct {
	Environment id.Environment     `json:"environment"`
	Driver      environment.Driver `json:"driver"`
}

// accessInput is a plan to look ahead with.
type accessInput struct {
	Environment string            `json:"environment,omitempty"`
	Calls       []ask.PlannedCall `json:"calls,omitempty"`
}

func (a *API) agentAccess(r *http.Request, who auth.Identity, body []byte) (accessPlan, error) {
	name, err := named[id.Agent](r)
	if err != nil {
		return accessPlan{}, err
	}
	in, err := readOptional[accessInput](r, body)
	if err != nil {
		return accessPlan{}, err
	}
	var plan accessPlan
	if in.Environment != "" {
		env, err := refer[id.Environment](in.Environment)
		if err != nil {
			return accessPlan{}, err
		}
		all := a.State.Environments(who.Tenant)
		i := slices.IndexFunc(all, func(e environment.Registered) bool { return e.Environment == env })
		if i < 0 {
			return accessPlan{}, problem.New(problem.NotFound, "there is no environment %s", id.Name(env))
		}
		plan.Environment = &plannedMachine{all[i].Environment, all[i].Driver}
	}
	plan.Access, err = a.Peers.ShowAccess(r.Context(), who, ask.ShowAccess{Agent: name, Calls: in.Calls})
	return plan, err
}

// agentTypes declares the tools that an agent's scripts may call.
func (a *API) agentTypes(r *http.Request, who auth.Identity, _ []byte) (ask.Types, error) {
	name, err := named[id.Agent](r)
	if err != nil {
		return ask.Types{}, err
	}
	of := r.URL.Query().Get("for")
	if of != "" && of != "model" {
		return ask.Types{}, problem.New(problem.Invalid, "for is model, or not there")
	}
	return a.Peers.ShowTypes(r.Context(), who, ask.ShowTypes{Agent: name, Model: of == "model"})
}
