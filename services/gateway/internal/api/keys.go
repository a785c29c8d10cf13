package api

import (
	"net/http"
	"slices"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

func owner(r member.Role) bool { return r == member.Owner }

type rewrapInput struct {
	Service schemas.Service `json:"service"`
	After   id.Tenant       `json:"after,omitempty"`
	Look    bool            `json:"look,omitempty"`
}

// rewrapKeys is about the keys of all tenants, so it is for the owner of the deployment.
func (a *API) rewrapKeys(r *http.Request, who auth.Identity, body []byte) (ask.Rewrapped, error) {
	if err := ofDeployment(who); err != nil {
		return ask.Rewrapped{}, err
	}
	in, err := read[rewrapInput](r, body)
	if err != nil {
		return ask.Rewrapped{}, err
	}
	if in.After != "" {
		if in.After, err = parsed[id.Tenant](string(in.After)); err != nil {
			return ask.Rewrapped{}, err
		}
	}
	if err := keeper(in.Service); err != nil {
		return ask.Rewrapped{}, err
	}
	return a.Peers.RewrapKeys(r.Context(), who, in.Service, ask.Rewrap{After: in.After, Look: in.Look})
}

type keyList struct {
	Instances []ask.InstanceKey `json:"instances"`
}

// masterKeys says whether every instance has heard of the same key, before an earlier one is thrown away.
func (a *API) masterKeys(r *http.Request, who auth.Identity, _ []byte) (keyList, error) {
	if err := ofDeployment(who); err != nil {
		return keyList{}, err
	}
	all, err := a.Peers.MasterKeys(r.Context(), who)
	return keyList{all}, err
}

func ofDeployment(who auth.Identity) error {
	if who.Tenant != auth.MainTenant {
		return problem.New(problem.Denied, "the deployment's keys are the business of an owner of %s", auth.MainTenant)
	}
	return nil
}

type renewInput struct {
	Service schemas.Service `json:"service"`
}

func (a *API) renewKeys(r *http.Request, who auth.Identity, body []byte) (ask.Rewrapped, error) {
	in, err := read[renewInput](r, body)
	if err != nil {
		return ask.Rewrapped{}, err
	}
	if err := keeper(in.Service); err != nil {
		return ask.Rewrapped{}, err
	}
	return a.Peers.RenewKeys(r.Context(), who, in.Service)
}

func keeper(s schemas.Service) error {
	if !slices.Contains(schemas.Keepers(), s) {
		return problem.New(problem.Invalid, "service %.40q keeps no secrets; these do: %v", s, schemas.Keepers())
	}
	return nil
}
