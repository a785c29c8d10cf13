package api

import (
	"context"
	"net/http"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
)

type agentList struct {
	Agents []agent.Defined `json:"agents"`
}

func (a *API) agents(_ *http.Request, who auth.Identity, _ []byte) (agentList, error) {
	return agentList{a.State.Agents(who.Tenant)}, nil
}

// agentInput is an agent, and the key to its model when that is to be set too.
type agentInput struct {
	agent.Defined
	ModelKey string `json:"model_key,omitempty"`
}

func (a *API) defineAgent(r *http.Request, who auth.Identity, body []byte) (ask.Sequence, error) {
	name, err := named[id.Agent](r)
	if err != nil {
		return ask.Sequence{}, err
	}
	in, err := read[agentInput](r, body)
	if err != nil {
		return ask.Sequence{}, err
	}
	if in.Agent, err = same(name, in.Agent); err != nil {
		return ask.Sequence{}, err
	}
	if err := control.CheckAgent(in.Defined); err != nil {
		return ask.Sequence{}, err
	}
	if in.ModelKey != "" {
		// A crash after this leaves a key for an agent that is as before, which is of no harm; the other way round, an
		// agent would be there whose runs fail.
		if _, err := a.Peers.SetModelKey(r.Context(), who, ask.SetModelKey{Agent: name, Key: in.ModelKey}); err != nil {
			return ask.Sequence{}, err
		}
	}
	return a.sayAgent(r.Context(), who, in.Defined)
}

// removeAgent answers when nothing acts for the agent any more.
func (a *API) removeAgent(r *http.Request, who auth.Identity, _ []byte) (ask.InForce, error) {
	name, err := named[id.Agent](r)
	if err != nil {
		return ask.InForce{}, err
	}
	def, ok := a.State.Agent(who.Tenant, name)
	if !ok {
		return ask.InForce{}, problem.New(problem.NotFound, "there is no agent %s", name)
	}
	def.Removed = true
	said, err := a.sayAgent(r.Context(), who, def)
	if err != nil {
		return ask.InForce{}, err
	}
	return a.Peers.InForce(r.Context(), who, said.Seq)
}

func (a *API) sayAgent(ctx context.Context, who auth.Identity, def agent.Defined) (ask.Sequence, error) {
	seq, err := a.Log.Append(ctx, eventlog.Draft{Event: def, Tenant: who.Tenant, Key: string(def.Agent), Actor: string(who.Member)})
	if err == nil {
		a.Peers.Seen(ctx, seq)
	}
	return ask.Sequence{Seq: seq}, err
}
