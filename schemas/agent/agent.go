// Package agent holds the events of a caller identity.
package agent

import (
	"github.com/execwarden/execwarden/schemas/id"
)

// Hosting says who runs the agent's loop.
type Hosting string

// A hosted agent's loop is ours; an external one keeps its own and reaches tools over MCP.
const (
	Hosted   Hosting = "hosted"
	External Hosting = "external"
)

// Defined is the full state of an agent.
type Defined struct {
	Agent   id.Agent `json:"agent"`
	Hosting Hosting  `json:"hosting"`
	Model   Model    `json:"model,omitzero"`
	Runtime Runtime  `json:"runtime,omitzero"`
	Budgets Budgets  `json:"budgets,omitzero"`
	Removed bool     `json:"removed,omitempty"`
	Body    Body     `json:"body"`
}

// Kind implements schemas.Event.
func (Defined) Kind() string { return "agent.defined" }

// Body is the sensitive part of an agent: the text that steers it.
type Body struct {
	Instructions string `json:"instructions"`
}

// Model names the model that a hosted agent thinks with. The key is a named secret, sealed for agentloop.
type Model struct {
	Protocol        string   `json:"protocol"` // "openai" (Chat Completions) or "anthropic" (Messages)
	URL             string   `json:"url"`
	Name            string   `json:"name"`
	MaxOutputTokens int      `json:"max_output_tokens,omitempty"`
	Private         []string `json:"private,omitempty"` // address:port pairs that may be reached although not public
}

// Runtime says what the agent's JavaScript may do.
type Runtime struct {
	Enabled bool     `json:"enabled"`
	Egress  []Egress `json:"egress,omitempty"`
}

// Egress allows fetch to some hosts. Private names exact address:port pairs, usually none, that may be reached
// although they are not public.
type Egress struct {
	Hosts   []string `json:"hosts"`
	Methods []string `json:"methods,omitempty"`
	Private []string `json:"private,omitempty"`
}

// Budgets bound one run. Zero means the default that the agent loop documents.
type Budgets struct {
	Steps  int `json:"steps,omitempty"`
	Calls  int `json:"calls,omitempty"`
	Tokens int `json:"tokens,omitempty"`
}
