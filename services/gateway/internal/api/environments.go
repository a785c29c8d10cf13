package api

import (
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

type environmentList struct {
	Environments []environment.Registered `json:"environments"`
}

func (a *API) environments(_ *http.Request, who auth.Identity, _ []byte) (environmentList, error) {
	return environmentList{a.State.Environments(who.Tenant)}, nil
}

func (a *API) defineEnvironment(r *http.Request, who auth.Identity, body []byte) (ask.Sequence, error) {
	name, err := named[id.Environment](r)
	if err != nil {
		return ask.Sequence{}, err
	}
	in, err := read[environment.Registered](r, body)
	if err != nil {
		return ask.Sequence{}, err
	}
	if in.Environment, err = same(name, in.Environment); err != nil {
		return ask.Sequence{}, err
	}
	return a.Peers.DefineEnvironment(r.Context(), who, ask.DefineEnvironment{Environment: in})
}
