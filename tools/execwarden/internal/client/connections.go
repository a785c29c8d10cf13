package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// Connection is a connection with the tools that it was last seen to have.
type Connection struct {
	connection.Defined
	Tools []connection.Tool        `json:"tools"`
	Login *connection.LoginChanged `json:"login,omitempty"` // of one that has OAuth

	AgentLogins []connection.LoginChanged `json:"agent_logins,omitempty"` // of one with oauth.per_agent
}

// Connections lists the connections.
func (c *Client) Connections(ctx context.Context) ([]Connection, error) {
	list, err := get[struct {
		Connections []Connection `json:"connections"`
	}](ctx, c, "/v1/connections", nil)
	return list.Connections, err
}

// PutConnection makes or changes a connection. A credential that is not empty replaces the one that is there; the
// definition's own is only a fingerprint, which the server makes.
func (c *Client) PutConnection(ctx context.Context, def connection.Defined, credential string) error {
	def.Credential = ""
	_, err := send[ask.Sequence](ctx, c, http.MethodPut, "/v1/connections/"+segment(id.Name(def.Connection)), nil, struct {
		connection.Defined
		Credential string `json:"credential,omitempty"`
	}{def, credential})
	return err
}

// RemoveConnection removes a connection.
func (c *Client) RemoveConnection(ctx context.Context, name string) (ask.InForce, error) {
	return send[ask.InForce](ctx, c, http.MethodDelete, "/v1/connections/"+segment(name), nil, nil)
}

// DiffConnection asks what changed of a connection's tools since they were granted.
func (c *Client) DiffConnection(ctx context.Context, name string) (ask.ConnectionDiff, error) {
	return get[ask.ConnectionDiff](ctx, c, "/v1/connections/"+segment(name)+"/diff", nil)
}

// BeginLogin begins a login to a connection's provider, which goes on in a browser.
// With an agent it is that agent's own.
func (c *Client) BeginLogin(ctx context.Context, name string, a id.Agent) (ask.LoginBegun, error) {
	return send[ask.LoginBegun](ctx, c, http.MethodPost, "/v1/connections/"+segment(name)+"/login", nil, struct {
		Agent id.Agent `json:"agent,omitempty"`
	}{a})
}

// zipArchive is a request body that is not JSON.
type zipArchive []byte

// ImportPackage makes or changes the API package of a connection. archive is a zip with manifest.yaml beside the
// document.
func (c *Client) ImportPackage(ctx context.Context, name, document string, archive []byte) (ask.Imported, error) {
	return send[ask.Imported](ctx, c, http.MethodPut, "/v1/connections/"+segment(name)+"/package", url.Values{"document": {document}}, zipArchive(archive))
}
