package mcp

import (
	"context"
	"net/http"

	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// expiring ends the stream of a request when its access token expires: what comes after is for who has the next one. A session goes on
// with that, and so does what is under way in it: the client takes the stream up again. Where there are no sessions, a call that was
// made in time is answered, and only news end.
func expiring(r *http.Request, sessionless bool, who auth.Agent) (*http.Request, context.CancelFunc) {
	if who.ExpiresAt.IsZero() || sessionless && r.Header.Get("Mcp-Method") != "subscriptions/listen" {
		return r, func() {}
	}
	ctx, cancel := context.WithDeadline(r.Context(), who.ExpiresAt)
	return r.WithContext(ctx), cancel
}
