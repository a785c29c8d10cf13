package api

import (
	"net/http"
	"time"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
)

type grantList struct {
	Grants []grantRow `json:"grants"`
}

type grantRow struct {
	grant.Created
	State  string `json:"state"` // "active", "revoked", "expired"
	Reason string `json:"reason,omitempty"`
}

func (a *API) grants(_ *http.Request, who auth.Identity, _ []byte) (grantList, error) {
	out := grantList{Grants: []grantRow{}}
	for _, g := range a.State.Grants(who.Tenant) {
		out.Grants = append(out.Grants, grantRow{g.Created, stateOf(g, time.Now()), g.Reason})
	}
	return out, nil
}

func stateOf(g control.Grant, now time.Time) string {
	switch {
	case g.Revoked:
		return "revoked"
	case !g.ExpiresAt.IsZero() && !now.Before(g.ExpiresAt):
		return "expired"
	}
	return "active"
}

func (a *API) createGrant(r *http.Request, who auth.Identity, body []byte) (ask.Sequence, error) {
	name, err := named[id.Grant](r)
	if err != nil {
		return ask.Sequence{}, err
	}
	in, err := read[grant.Created](r, body)
	if err != nil {
		return ask.Sequence{}, err
	}
	if in.Grant, err = same(name, in.Grant); err != nil {
		return ask.Sequence{}, err
	}
	if in.Agent, err = refer[id.Agent](string(in.Agent)); err != nil {
		return ask.Sequence{}, err
	}
	if in.Run != "" {
		if in.Run, err = parsed[id.Run](string(in.Run)); err != nil {
			return ask.Sequence{}, err
		}
	}
	return a.Peers.CreateGrant(r.Context(), who, ask.CreateGrant{Grant: in})
}

type revocation struct {
	Reason string `json:"reason,omitempty"`
}

// revokeGrant answers how long it took, from asking on.
func (a *API) revokeGrant(r *http.Request, who auth.Identity, body []byte) (ask.InForce, error) {
	name, err := named[id.Grant](r)
	if err != nil {
		return ask.InForce{}, err
	}
	in, err := readOptional[revocation](r, body)
	if err != nil {
		return ask.InForce{}, err
	}
	began := time.Now()
	done, err := a.Peers.RevokeGrant(r.Context(), who, ask.RevokeGrant{Grant: name, Reason: in.Reason})
	if err != nil {
		return ask.InForce{}, err
	}
	done.ConfirmedMS = float64(time.Since(began).Microseconds()) / 1000
	a.Peers.Seen(r.Context(), done.Seq)
	return done, nil
}
