package client

import (
	"context"
	"net/http"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Identity is whom a token stands for.
type Identity struct {
	Tenant id.Tenant   `json:"tenant"`
	Member id.Member   `json:"member"`
	Role   member.Role `json:"role"`
}

// Whoami says whom the client's token stands for.
func (c *Client) Whoami(ctx context.Context) (Identity, error) {
	return get[Identity](ctx, c, "/v1/whoami", nil)
}

// Login is an address that opens the console in a browser, once.
type Login struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// NewLogin makes an address for a browser.
func (c *Client) NewLogin(ctx context.Context) (Login, error) {
	return send[Login](ctx, c, http.MethodPost, "/v1/logins", nil, struct{}{})
}
