package api

import (
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

type targetList struct {
	Targets []target.Defined `json:"targets"`
}

func (a *API) targets(_ *http.Request, who auth.Identity, _ []byte) (targetList, error) {
	return targetList{a.State.Targets(who.Tenant)}, nil
}

// targetInput is a target with its address, where the definition has only a fingerprint.
type targetInput struct {
	target.Defined
	Address string `json:"address,omitempty"`
	Secret  string `json:"secret,omitempty"`
}

func (a *API) defineTarget(r *http.Request, who auth.Identity, body []byte) (ask.DefinedTarget, error) {
	name, err := named[id.Target](r)
	if err != nil {
		return ask.DefinedTarget{}, err
	}
	in, err := read[targetInput](r, body)
	if err != nil {
		return ask.DefinedTarget{}, err
	}
	if in.Target, err = same(name, in.Target); err != nil {
		return ask.DefinedTarget{}, err
	}
	if in.Removed {
		return ask.DefinedTarget{}, problem.New(problem.Invalid, "removed is not for definitions; delete the target instead")
	}
	in.Host, in.Fingerprint = "", "" // what they are follows from the address
	return a.Peers.DefineTarget(r.Context(), who, ask.DefineTarget{Target: in.Defined, Address: in.Address, Secret: in.Secret})
}

// removeTarget has the address forgotten, too.
func (a *API) removeTarget(r *http.Request, who auth.Identity, _ []byte) (ask.DefinedTarget, error) {
	name, err := named[id.Target](r)
	if err != nil {
		return ask.DefinedTarget{}, err
	}
	return a.Peers.DefineTarget(r.Context(), who, ask.DefineTarget{Target: target.Defined{Target: name, Removed: true}})
}

func (a *API) testTarget(r *http.Request, who auth.Identity, body []byte) (ask.Done, error) {
	name, err := named[id.Target](r)
	if err != nil {
		return ask.Done{}, err
	}
	if _, err := readOptional[struct{}](r, body); err != nil {
		return ask.Done{}, err
	}
	return a.Peers.TestTarget(r.Context(), who, ask.TestTarget{Target: name})
}
