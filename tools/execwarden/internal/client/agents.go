package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// Agents lists the agents.
func (c *Client) Agents(ctx context.Context) ([]agent.Defined, error) {
	list, err := get[struct {
		Agents []agent.Defined `json:"agents"`
	}](ctx, c, "/v1/agents", nil)
	return list.Agents, err
}

// PutAgent makes or changes an agent. A model key that is not empty replaces the one that is there.
func (c *Client) PutAgent(ctx context.Context, a agent.Defined, modelKey string) error {
	_, err := send[ask.Sequence](ctx, c, http.MethodPut, "/v1/agents/"+segment(id.Name(a.Agent)), nil, struct {
		agent.Defined
		ModelKey string `json:"model_key,omitempty"`
	}{a, modelKey})
	return err
}

// Access is what an agent could do, with the machine that it would have.
type Access struct {
	ask.Access
	Environment *ask.Environment `json:"environment,omitempty"`
}

// Access says what an agent could do, tool by tool, on an environment if one is named, and what would become of calls
// that nobody asked for yet.
func (c *Client) Access(ctx context.Context, name, env string, calls []ask.PlannedCall) (Access, error) {
	return send[Access](ctx, c, http.MethodPost, "/v1/agents/"+segment(name)+"/access", nil, struct {
		Environment string            `json:"environment,omitempty"`
		Calls       []ask.PlannedCall `json:"calls,omitempty"`
	}{env, calls})
}

// Types declares the tools that an agent's scripts may call; for its model, as that is given them.
func (c *Client) Types(ctx context.Context, name string, model bool) (ask.Types, error) {
	query := url.Values{}
	if model {
		query.Set("for", "model")
	}
	return get[ask.Types](ctx, c, "/v1/agents/"+segment(name)+"/types", query)
}

// RemoveAgent removes an agent.
func (c *Client) RemoveAgent(ctx context.Context, name string) (ask.InForce, error) {
	return send[ask.InForce](ctx, c, http.MethodDelete, "/v1/agents/"+segment(name), nil, nil)
}
