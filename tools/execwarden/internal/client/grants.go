package client

import (
	"context"
	"net/http"
	"time"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// GrantState is what became of a grant.
type GrantState string

// The states of a grant.
const (
	Active  GrantState = "active"
	Revoked GrantState = "revoked"
	Expired GrantState = "expired"
)

// Grant is a grant with what became of it.
type Grant struct {
	grant.Created
	State  GrantState `json:"state"`
	Reason string     `json:"reason,omitempty"`
}

// Grants lists the grants, those that were revoked too.
func (c *Client) Grants(ctx context.Context) ([]Grant, error) {
	list, err := get[struct {
		Grants []Grant `json:"grants"`
	}](ctx, c, "/v1/grants", nil)
	return list.Grants, err
}

// PutGrant makes or changes a grant.
func (c *Client) PutGrant(ctx context.Context, g grant.Created) error {
	_, err := send[ask.Sequence](ctx, c, http.MethodPut, "/v1/grants/"+segment(id.Name(g.Grant)), nil, g)
	return err
}

// Took is how long it was until a change was in force.
func Took(r ask.InForce) time.Duration {
	return time.Duration(r.ConfirmedMS * float64(time.Millisecond))
}

// Revoke ends a grant.
func (c *Client) Revoke(ctx context.Context, name, reason string) (ask.InForce, error) {
	return send[ask.InForce](ctx, c, http.MethodPost, "/v1/grants/"+segment(name)+"/revoke", nil, struct {
		Reason string `json:"reason,omitempty"`
	}{reason})
}

// Simulate holds a grant that nobody made yet against the calls since a time.
func (c *Client) Simulate(ctx context.Context, g grant.Created, since time.Time) (ask.Simulation, error) {
	return send[ask.Simulation](ctx, c, http.MethodPost, "/v1/grants/"+segment(id.Name(g.Grant))+"/simulate", nil, struct {
		grant.Created
		Since time.Time `json:"since"`
	}{g, since})
}
