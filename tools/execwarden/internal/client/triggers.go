package client

import (
	"context"
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/trigger"
)

// Triggers lists the triggers.
func (c *Client) Triggers(ctx context.Context) ([]trigger.Defined, error) {
	list, err := get[struct {
		Triggers []trigger.Defined `json:"triggers"`
	}](ctx, c, "/v1/triggers", nil)
	return list.Triggers, err
}

// PutTrigger makes or changes a trigger.
func (c *Client) PutTrigger(ctx context.Context, t trigger.Defined) error {
	_, err := send[ask.Sequence](ctx, c, http.MethodPut, "/v1/triggers/"+segment(id.Name(t.Trigger)), nil, t)
	return err
}

// PutHook sets the secret of a webhook endpoint. The API does not tell which endpoints there are.
func (c *Client) PutHook(ctx context.Context, hook id.Hook, secret string) error {
	_, err := send[ask.Done](ctx, c, http.MethodPut, "/v1/hooks/"+segment(id.Name(hook)), nil, struct {
		Secret string `json:"secret"`
	}{secret})
	return err
}
