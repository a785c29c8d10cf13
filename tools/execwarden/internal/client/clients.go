package client

import (
	"context"
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/client"
	"github.com/execwarden/execwarden/schemas/id"
)

// OAuthClient is a program that may log in to act for external agents.
type OAuthClient struct {
	client.Defined
	ClientID string `json:"client_id"` // as it says who it is
}

// NewOAuthClient is a client to register: with Redirects, members log in with it; with Agent, it is that agent's own.
type NewOAuthClient struct {
	Name      string   `json:"name,omitempty"`
	Redirects []string `json:"redirects,omitempty"`
	Agent     string   `json:"agent,omitempty"`
	Secret    bool     `json:"secret,omitempty"`
}

// RegisteredClient is what is told of a client that was registered. Secret is told this once.
type RegisteredClient struct {
	Client   id.Client `json:"client"`
	ClientID string    `json:"client_id"`
	Secret   string    `json:"secret,omitempty"`
	Seq      uint64    `json:"seq"`
}

// OAuthClients lists the clients that are registered, and those that were let in by their metadata documents.
func (c *Client) OAuthClients(ctx context.Context) ([]OAuthClient, error) {
	list, err := get[struct {
		Clients []OAuthClient `json:"clients"`
	}](ctx, c, "/v1/clients", nil)
	return list.Clients, err
}

// RegisterClient registers a client, or changes one.
func (c *Client) RegisterClient(ctx context.Context, name string, k NewOAuthClient) (RegisteredClient, error) {
	return send[RegisteredClient](ctx, c, http.MethodPut, "/v1/clients/"+segment(name), nil, k)
}

// RemoveClient removes a client, with everything that it was given.
func (c *Client) RemoveClient(ctx context.Context, name string) (ask.InForce, error) {
	return send[ask.InForce](ctx, c, http.MethodDelete, "/v1/clients/"+segment(name), nil, nil)
}
