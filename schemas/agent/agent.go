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
	MCP     MCP      `json:"mcp,omitzero"`
	Budgets Budgets  `json:"budgets,omitzero"`
	Removed bool     `json:"removed,omitempty"`
	Body    Body     `json:"body"`
}

// Kind implements schemas.Event.
func (Defined) Kind() string { return "agent.defined" }

// MCP says how an external agent is served over MCP.
type MCP struct {
	Tools Listing `json:"tools,omitempty"`
}

// Listing says which tools an external agent is listed.
type Listing string

// All is the default. A lazy agent is listed a few tools by which it finds, reads about and calls the others, so that its model does
// not read hundreds.
const (
	All  Listing = "all"
	Lazy Listing = "lazy"
)

// Known says whether it is a listing, or none, which is the default.
func (l Listing) Known() bool { return l == "" || l == All || l == Lazy }

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
// although they are not public. The caps can be lowered, not raised; zero is the default, which is also the most.
type Egress struct {
	Hosts         []string `json:"hosts"`
	Methods       []string `json:"methods,omitempty"` // default: GET and HEAD
	Private       []string `json:"private,omitempty"`
	ResponseBytes int      `json:"response_bytes,omitempty"` // of one response's body, decompressed; default: 5 MiB
	RequestBytes  int      `json:"request_bytes,omitempty"`  // of one request's body; default: 1 MiB
	TimeoutMS     int      `json:"timeout_ms,omitempty"`     // of one fetch with its redirects; default: 10 s
	Fetches       int      `json:"fetches,omitempty"`        // that one script may make by this rule; default: 20, which is the most by all rules together
}

// The most that a rule's caps can be.
const (
	MaxResponseBytes = 5 << 20
	MaxRequestBytes  = 1 << 20
	MaxTimeoutMS     = 10_000
	MaxFetches       = 20
)

// Capped says whether each cap is between zero and the most.
func (e Egress) Capped() bool {
	within := func(n, most int) bool { return 0 <= n && n <= most }
	return within(e.ResponseBytes, MaxResponseBytes) && within(e.RequestBytes, MaxRequestBytes) &&
		within(e.TimeoutMS, MaxTimeoutMS) && within(e.Fetches, MaxFetches)
}

// WithDefaults fills the caps that are zero.
func (e Egress) WithDefaults() Egress {
	fill := func(n *int, most int) {
		if *n == 0 {
			*n = most
		}
	}
	fill(&e.ResponseBytes, MaxResponseBytes)
	fill(&e.RequestBytes, MaxRequestBytes)
	fill(&e.TimeoutMS, MaxTimeoutMS)
	fill(&e.Fetches, MaxFetches)
	return e
}

// Budgets bound one run. Zero means the default that the agent loop documents.
type Budgets struct {
	Steps  int `json:"steps,omitempty"`
	Calls  int `json:"calls,omitempty"`
	Tokens int `json:"tokens,omitempty"`
}
