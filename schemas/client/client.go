// Package client holds the events of programs that log in to act for external agents (OAuth 2.1).
package client

import "github.com/execwarden/execwarden/schemas/id"

// Defined is the full state of a client: one that a member registered, or one that has a metadata document and that a member
// consented to. A secret, or its hash, is never in an event.
type Defined struct {
	Client      id.Client `json:"client"`
	Name        string    `json:"name,omitempty"`        // what it calls itself, or a member calls it
	URL         string    `json:"url,omitempty"`         // of its metadata document, which is its client_id then; empty: it was registered
	Redirects   []string  `json:"redirects,omitempty"`   // where a login may lead back to
	Agent       id.Agent  `json:"agent,omitempty"`       // whose own client it is: it gets this agent's tokens by its secret alone
	Fingerprint string    `json:"fingerprint,omitempty"` // of its secret, as of tokens; empty: it has none
	Removed     bool      `json:"removed,omitempty"`     // with everything that it was given
}

// Kind implements schemas.Event.
func (Defined) Kind() string { return "client.defined" }
