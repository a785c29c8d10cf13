package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
)

// Bounds of tokens.
const (
	maxTokens    = 100 // of a member, that work
	maxTokensNew = 200 // of a member, made within a day: the control stream keeps them for ever
	maxTokenLife = 10 * 365 * 24 * time.Hour
)

type tokenList struct {
	Tokens []tokenRow `json:"tokens"`
}

// tokenRow is what is known of a token: nothing that opens anything.
type tokenRow struct {
	Token       id.Token    `json:"token"`
	Member      id.Member   `json:"member"` // of an agent's token, who made it
	Name        string      `json:"name,omitempty"`
	Agent       id.Agent    `json:"agent,omitempty"`
	Client      id.Client   `json:"client,omitempty"`   // that a login gave it to; revoking it ends the login
	Resource    string      `json:"resource,omitempty"` // the URL that a client's is for
	Role        member.Role `json:"role"`               // what it gives now
	Fingerprint string      `json:"fingerprint"`
	IssuedAt    time.Time   `json:"issued_at"`
	IssuedBy    string      `json:"issued_by"`
	ExpiresAt   time.Time   `json:"expires_at,omitzero"`
	State       string      `json:"state"` // "active", "expired", "revoked", "removed" (its member, agent or client was)
	Reason      string      `json:"reason,omitempty"`
}

func (a *API) tokens(r *http.Request, who auth.Identity, _ []byte) (tokenList, error) {
	out := tokenList{Tokens: []tokenRow{}}
	names := map[id.Member]string{}
	for _, k := range a.State.Tokens(who.Tenant) {
		if _, known := names[k.Member]; !known {
			person, err := a.People.Person(r.Context(), who.Tenant, k.Member)
			if err != nil {
				return out, err
			}
			names[k.Member] = person.Name
		}
		out.Tokens = append(out.Tokens, tokenRow{Token: k.Issued.Token, Member: k.Member, Name: names[k.Member], Agent: k.Agent, Client: k.Client, Resource: k.Resource, Role: a.roleOf(who.Tenant, k),
			Fingerprint: k.Fingerprint, IssuedAt: k.IssuedAt, IssuedBy: k.IssuedBy, ExpiresAt: k.ExpiresAt,
			State: a.stateOf(who.Tenant, k, time.Now()), Reason: k.Reason})
	}
	return out, nil
}

// roleOf is the role that a token gives now; empty when its member was removed. The first tokens of a deployment were
// recorded without a role: they are as wide as their member.
func (a *API) roleOf(tenant id.Tenant, k control.Token) member.Role {
	role, _ := a.State.Role(tenant, k.Member)
	if k.Agent != "" {
		return ""
	}
	if k.Role == "" {
		return role
	}
	return member.Narrower(k.Role, role)
}

func (a *API) stateOf(tenant id.Tenant, k control.Token, now time.Time) string {
	_, there := a.State.Role(tenant, k.Member)
	if k.Agent != "" {
		_, there = a.State.Agent(tenant, k.Agent)
		if k.Client != "" && there {
			_, there = a.State.Client(tenant, k.Client)
		}
	}
	switch {
	case k.Revoked:
		return "revoked"
	case !there:
		return "removed"
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return "expired"
	}
	return "active"
}

type tokenInput struct {
	Member    string      `json:"member,omitempty"` // default: whoever asks
	Agent     id.Agent    `json:"agent,omitempty"`  // an external agent's token, in place of a member's
	Role      member.Role `json:"role,omitempty"`   // default: as wide as may be
	ExpiresAt time.Time   `json:"expires_at,omitzero"`
}

func (a *API) createToken(r *http.Request, who auth.Identity, body []byte) (issued, error) {
	in, err := readOptional[tokenInput](r, body)
	if err != nil {
		return issued{}, err
	}
	if in.Agent != "" {
		return a.createAgentToken(r.Context(), who, in)
	}
	m, widest := who.Member, who.Role
	if in.Member != "" {
		if m, err = a.someone(r.Context(), who.Tenant, in.Member); err != nil {
			return issued{}, err
		}
	}
	if m != who.Member {
		var ok bool
		if who.Role != member.Owner {
			return issued{}, problem.New(problem.Denied, "a member with role %s makes tokens for nobody else", who.Role)
		}
		if widest, ok = a.State.Role(who.Tenant, m); !ok {
			return issued{}, problem.New(problem.NotFound, "there is no member %s", m)
		}
	}
	role := in.Role
	switch {
	case role == "":
		role = widest
	case !role.Valid():
		return issued{}, problem.New(problem.Invalid, "role %.40q is not owner, admin, approver or auditor", role)
	case !widest.AtLeast(role):
		return issued{}, problem.New(problem.Denied, "the token may be as wide as %s and no wider", widest)
	}
	expires, err := lasting(who, in.ExpiresAt, time.Now())
	if err != nil {
		return issued{}, err
	}
	if err := a.roomFor(who.Tenant, string(m), time.Now()); err != nil {
		return issued{}, err
	}
	return a.issue(r.Context(), who, auth.Membership{Tenant: who.Tenant, Member: m, Role: role, ExpiresAt: expires}, "")
}

// createAgentToken makes a token with which an external agent reaches its tools. It may outlive whoever makes it, since it
// is the agent's; it ends with the agent, when it is revoked, or when it expires.
func (a *API) createAgentToken(ctx context.Context, who auth.Identity, in tokenInput) (issued, error) {
	if !who.Role.MayConfigure() {
		return issued{}, problem.New(problem.Denied, "a member with role %s makes no tokens for agents", who.Role)
	}
	if in.Member != "" || in.Role != "" {
		return issued{}, problem.New(problem.Invalid, "an agent's token has no member and no role")
	}
	if _, err := id.Parse[id.Agent](string(in.Agent)); err != nil {
		return issued{}, problem.Wrap(err, problem.Invalid, "agent: %v", err)
	}
	switch def, ok := a.State.Agent(who.Tenant, in.Agent); {
	case !ok:
		return issued{}, problem.New(problem.NotFound, "there is no agent %s", id.Name(in.Agent))
	case def.Hosting != agent.External:
		return issued{}, problem.New(problem.Invalid, "agent %s is hosted, and needs no token; an external one has hosting: external", id.Name(in.Agent))
	}
	expires, err := lasting(who, in.ExpiresAt, time.Now())
	if err != nil {
		return issued{}, err
	}
	if err := a.roomFor(who.Tenant, string(in.Agent), time.Now()); err != nil {
		return issued{}, err
	}
	return a.issue(ctx, who, auth.Membership{Tenant: who.Tenant, Member: who.Member, Agent: in.Agent, ExpiresAt: expires}, "")
}

// roomFor checks that a member or an agent has not too many tokens.
func (a *API) roomFor(tenant id.Tenant, m string, now time.Time) error {
	working, fresh := 0, 0
	for _, k := range a.State.Tokens(tenant) {
		if cmp.Or(string(k.Agent), string(k.Member)) != m {
			continue
		}
		if a.stateOf(tenant, k, now) == "active" {
			working++
		}
		if now.Sub(k.IssuedAt) < 24*time.Hour {
			fresh++
		}
	}
	switch {
	case working >= maxTokens:
		return problem.New(problem.Conflict, "%s has %d tokens that work, which is the most; revoke some", m, working)
	case fresh >= maxTokensNew:
		return problem.New(problem.Busy, "%d tokens were made for %s within a day, which is the most", fresh, m)
	}
	return nil
}

// lasting checks when a new token is to expire: it does not outlive the one that makes it, else whoever stole that has
// it for ever.
func lasting(who auth.Identity, asked, now time.Time) (time.Time, error) {
	switch {
	case asked.IsZero():
		return who.ExpiresAt, nil
	case !asked.After(now) || asked.Sub(now) > maxTokenLife:
		return time.Time{}, problem.New(problem.Invalid, "a token expires in the future, and within ten years")
	case !who.ExpiresAt.IsZero() && asked.After(who.ExpiresAt):
		return time.Time{}, problem.New(problem.Denied, "your own token expires at %s, and makes none that lasts longer", who.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return asked.UTC(), nil
}

// revokeToken is answered when every gateway refuses the token and what began with it: sessions, login links, streams.
func (a *API) revokeToken(r *http.Request, who auth.Identity, body []byte) (ask.InForce, error) {
	which, err := minted[id.Token](r)
	if err != nil {
		return ask.InForce{}, err
	}
	in, err := readOptional[revocation](r, body)
	if err != nil {
		return ask.InForce{}, err
	}
	if len(in.Reason) > maxReason {
		return ask.InForce{}, problem.New(problem.Invalid, "a reason has at most %d bytes", maxReason)
	}
	k, ok := a.State.Token(who.Tenant, which)
	role := a.roleOf(who.Tenant, k)
	switch {
	case !ok:
		return ask.InForce{}, problem.New(problem.NotFound, "there is no token %s", which)
	case k.Member != who.Member && !who.Role.MayConfigure():
		return ask.InForce{}, problem.New(problem.Denied, "a member with role %s revokes their own tokens only", who.Role)
	case role != "" && !who.Role.AtLeast(role):
		return ask.InForce{}, problem.New(problem.Denied, "the token gives the role %s, which is wider than yours", role)
	}
	began := time.Now()
	seq, err := a.Log.Append(r.Context(), eventlog.Draft{
		Event: token.Revoked{Token: which, Member: k.Member, Agent: k.Agent, Reason: in.Reason}, Tenant: who.Tenant, Key: string(which), Actor: string(who.Member),
	})
	if err != nil {
		return ask.InForce{}, err
	}
	return a.inForce(r.Context(), who, seq, began, schemas.Gateway)
}
