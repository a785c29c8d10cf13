package client

import (
	"context"
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/target"
)

// Targets lists the targets where approvers are told.
func (c *Client) Targets(ctx context.Context) ([]target.Defined, error) {
	list, err := get[struct {
		Targets []target.Defined `json:"targets"`
	}](ctx, c, "/v1/targets", nil)
	return list.Targets, err
}

// PutTarget makes or changes a target. An empty address or secret keeps the one that is there.
func (c *Client) PutTarget(ctx context.Context, def target.Defined, address, secret string) (ask.DefinedTarget, error) {
	return send[ask.DefinedTarget](ctx, c, http.MethodPut, "/v1/targets/"+segment(id.Name(def.Target)), nil, struct {
		target.Defined
		Address string `json:"address,omitempty"`
		Secret  string `json:"secret,omitempty"`
	}{def, address, secret})
}

// RemoveTarget removes a target, and has its address forgotten.
func (c *Client) RemoveTarget(ctx context.Context, name string) (ask.DefinedTarget, error) {
	return send[ask.DefinedTarget](ctx, c, http.MethodDelete, "/v1/targets/"+segment(name), nil, nil)
}

// TestTarget has a notice sent that is about nothing. Problems: upstream_error when the target did not take it.
func (c *Client) TestTarget(ctx context.Context, name string) error {
	_, err := send[ask.Done](ctx, c, http.MethodPost, "/v1/targets/"+segment(name)+"/test", nil, nil)
	return err
}
