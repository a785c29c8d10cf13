// Package token holds the events of access tokens. The token itself, or its hash, is never in an event.
package token

import (
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// Issued says that a token was made for a member. The fingerprint tells tokens apart in records; it is the first 12
// hex digits of the token's SHA-256 and opens nothing.
type Issued struct {
	Token       id.Token  `json:"token"`
	Member      id.Member `json:"member"`
	Fingerprint string    `json:"fingerprint"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"`
}

// Kind implements schemas.Event.
func (Issued) Kind() string { return "token.issued" }
