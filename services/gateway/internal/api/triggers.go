package api

import (
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

type triggerList struct {
	Triggers []trigger.Defined `json:"triggers"`
}

func (a *API) triggers(_ *http.Request, who auth.Identity, _ []byte) (triggerList, error) {
	return triggerList{a.State.Triggers(who.Tenant)}, nil
}

func (a *API) defineTrigger(r *http.Request, who auth.Identity, body []byte) (ask.Sequence, error) {
	name, err := named[id.Trigger](r)
	if err != nil {
		return ask.Sequence{}, err
	}
	in, err := read[trigger.Defined](r, body)
	if err != nil {
		return ask.Sequence{}, err
	}
	if in.Trigger, err = same(name, in.Trigger); err != nil {
		return ask.Sequence{}, err
	}
	if in.Hook, err = refer[id.Hook](string(in.Hook)); err != nil {
		return ask.Sequence{}, err
	}
	if in.Agent, err = refer[id.Agent](string(in.Agent)); err != nil {
		return ask.Sequence{}, err
	}
	return a.Peers.DefineTrigger(r.Context(), who, ask.DefineTrigger{Trigger: in})
}

type hookInput struct {
	Secret string `json:"secret"`
}

func (a *API) defineHook(r *http.Request, who auth.Identity, body []byte) (ask.Done, error) {
	name, err := named[id.Hook](r)
	if err != nil {
		return ask.Done{}, err
	}
	in, err := read[hookInput](r, body)
	if err != nil {
		return ask.Done{}, err
	}
	if in.Secret == "" {
		return ask.Done{}, problem.New(problem.Invalid, "a webhook endpoint has a secret: without one, anybody could be the provider")
	}
	return a.Peers.DefineHook(r.Context(), who, ask.DefineHook{Hook: name, Secret: in.Secret})
}
