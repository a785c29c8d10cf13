package client

import (
	"context"
	"net/http"

	"github.com/execwarden/execwarden/schemas/ask"
)

// Verify asks the ledger to prove itself.
func (c *Client) Verify(ctx context.Context) (ask.Verified, error) {
	return send[ask.Verified](ctx, c, http.MethodPost, "/v1/ledger/verify", nil, struct{}{})
}

// Position says how far the ledger has recorded.
func (c *Client) Position(ctx context.Context) (Cursor, error) {
	at, err := get[ask.Cursor](ctx, c, "/v1/ledger/position", nil)
	return Cursor(at), err
}
