package auth

import (
	"context"
	"net/http"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/id"
)

// Agent is an authenticated external agent.
type Agent struct {
	Tenant    id.Tenant
	Agent     id.Agent
	Token     id.Token
	Client    id.Client // that a login gave the token to; then Token is the login, however often its access token is renewed
	Resource  string    // the URL that the token is for; empty: all of MCP
	Issuer    string    // that is not ours, of a token that is in no record of ours; then Token stands for all that it renews
	ExpiresAt time.Time // of the token; zero: never
}

// Caller is the agent as other services are told of it. It has no role: what it may do, its grants say.
func (a Agent) Caller() rpc.Caller { return rpc.Caller{Tenant: a.Tenant, Actor: string(a.Agent)} }

// IdentifyAgent says which external agent makes a request. Problems: unauthenticated, busy, unavailable.
func (g *Gate) IdentifyAgent(r *http.Request) (who Agent, err error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return who, problem.New(problem.Unauthenticated, "send an agent's token: Authorization: Bearer %s...", agentPrefix)
	}
	secret, err := bearer(header, agentPrefix)
	if err == nil && g.Issued != nil && g.Issued.Looks(secret.Reveal()) {
		err = g.counted(r, HashOf(secret), func(Hash) error {
			who, err = g.Issued.Agent(r.Context(), secret.Reveal(), r.URL.Path)
			return err
		})
		return who, err
	}
	if err == nil {
		secret, err = parseSecret(agentPrefix, secret.Reveal())
	}
	if err != nil {
		return who, err // nothing was looked up, so it is not counted
	}
	err = g.counted(r, HashOf(secret), func(h Hash) error {
		who, err = g.agent(r.Context(), h)
		return err
	})
	return who, err
}

// Issued takes tokens of authorization servers that are not ours.
type Issued interface {
	// Looks says whether a text can be such a token.
	Looks(text string) bool
	// Agent says which agent one is of, at a path of the endpoint. Problems: unauthenticated, unavailable.
	Agent(ctx context.Context, text, path string) (Agent, error)
}

func (g *Gate) agent(ctx context.Context, h Hash) (Agent, error) {
	m, err := g.people.findAgent(ctx, h, g.now())
	if err == nil && m.Agent == "" {
		err = problem.New(problem.Unauthenticated, "the token is no agent's")
	}
	if err == nil {
		err = g.members.Agent(m.Tenant, m.Agent, m.Token)
	}
	if err != nil {
		return Agent{}, err
	}
	return Agent{Tenant: m.Tenant, Agent: m.Agent, Token: m.Token, Client: m.Client, Resource: m.Resource, ExpiresAt: m.ExpiresAt}, nil
}
