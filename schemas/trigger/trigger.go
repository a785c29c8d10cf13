// Package trigger holds the events of the rules by which webhook deliveries start runs.
package trigger

import "github.com/execwarden/execwarden/schemas/id"

// Defined is the full state of a trigger.
type Defined struct {
	Trigger id.Trigger `json:"trigger"`
	Hook    id.Hook    `json:"hook"`
	Events  []string   `json:"events"`          // "issues.opened": event and, after the dot, action
	Repos   []string   `json:"repos,omitempty"` // "owner/name"; empty means none
	Agent   id.Agent   `json:"agent"`
	Prompt  string     `json:"prompt"` // a Go text/template over trigger.Facts
	Removed bool       `json:"removed,omitempty"`
}

// Kind implements schemas.Event.
func (Defined) Kind() string { return "trigger.defined" }
