package client

import (
	"context"
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
)

// Environments lists the environments.
func (c *Client) Environments(ctx context.Context) ([]environment.Registered, error) {
	list, err := get[struct {
		Environments []environment.Registered `json:"environments"`
	}](ctx, c, "/v1/environments", nil)
	return list.Environments, err
}

// PutEnvironment makes or changes an environment.
func (c *Client) PutEnvironment(ctx context.Context, e environment.Registered) error {
	_, err := send[ask.Sequence](ctx, c, http.MethodPut, "/v1/environments/"+segment(id.Name(e.Environment)), nil, e)
	return err
}
