// Package token holds the events of access tokens. The token itself, or its hash, is never in an event.
package token

import (
	"time"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Issued says that a token was made for a member, or by one for an external agent. The fingerprint tells tokens apart in records; it is the first 12
// hex digits of the token's SHA-256 and opens nothing.
type Issued struct {
	Token       id.Token    `json:"token"`
	Member      id.Member   `json:"member"`
	Role        member.Role `json:"role,omitempty"`     // the widest that the token gives; empty: as wide as its member
	Agent       id.Agent    `json:"agent,omitempty"`    // when set, the token is this agent's, opens nothing but MCP, and Member is who made it
	Client      id.Client   `json:"client,omitempty"`   // when set, the token is what a member's login gave this client for the agent, and stands for every access token of it
	Resource    string      `json:"resource,omitempty"` // of a client's token: the URL that it is for (RFC 8707); empty: all of MCP
	Fingerprint string      `json:"fingerprint"`
	ExpiresAt   time.Time   `json:"expires_at,omitzero"`
}

// Kind implements schemas.Event.
func (Issued) Kind() string { return "token.issued" }

// Revoked says that a token does not work any more, for good.
type Revoked struct {
	Token  id.Token  `json:"token"`
	Member id.Member `json:"member"`
	Agent  id.Agent  `json:"agent,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Kind implements schemas.Event.
func (Revoked) Kind() string { return "token.revoked" }

// Tainted says what an external agent was given over this token, where MCP has no sessions: from then on its calls by the token
// are tainted by that. Each says all of it. Of two that two instances say at one moment the later one counts, and may lack what
// the other has: that there is taint is never lost.
type Tainted struct {
	Token id.Token `json:"token"`
	Agent id.Agent `json:"agent"`
	Taint []string `json:"taint"` // sorted
}

// Kind implements schemas.Event.
func (Tainted) Kind() string { return "token.tainted" }
