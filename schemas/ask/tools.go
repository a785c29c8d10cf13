package ask

import (
	"encoding/json"

	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// SearchTools asks which tools an agent's scripts may call in a run that a query's words say most about. Limit is at
// most and by default 20.
type SearchTools struct {
	Agent  id.Agent `json:"agent"`
	Run    id.Run   `json:"run"`
	Query  string   `json:"query"`
	Limit  int      `json:"limit,omitempty"`
	Client bool     `json:"client,omitempty"` // an external agent's client asks, which calls them itself
}

// FoundTools are tools, the best first.
type FoundTools struct {
	Tools []FoundTool `json:"tools"`
}

// FoundTool is a tool as a search shows it.
type FoundTool struct {
	Name        string `json:"name"`        // connection.tool
	Description string `json:"description"` // its beginning
	Writes      bool   `json:"writes"`
}

// DescribeTool asks for one tool that an agent's scripts may call in a run.
type DescribeTool struct {
	Agent  id.Agent `json:"agent"`
	Run    id.Run   `json:"run"`
	Name   string   `json:"name"`
	Client bool     `json:"client,omitempty"` // as for a search
}

// DescribedTool is what a script can know of a tool. Types declares it as TypeScript, for scripts.
type DescribedTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Writes      bool            `json:"writes"`
	Types       string          `json:"types"`
	Schema      json.RawMessage `json:"schema"` // null when it is larger than an answer may be
}

// ShowTypes asks for the tools that an agent's scripts may call, as TypeScript; for Model, as its model is given them.
type ShowTypes struct {
	Agent id.Agent `json:"agent"`
	Model bool     `json:"model,omitempty"`
}

// Types declares tools. Where there is no room for all, some are declared by their names only, and some are left out.
type Types struct {
	Types   string `json:"types"`   // TypeScript, empty when there is no tool
	Tools   int    `json:"tools"`   // how many a script may call
	Bare    int    `json:"bare"`    // of these, by their names only
	Left    int    `json:"left"`    // of these, not declared
	Runtime bool   `json:"runtime"` // the agent may run scripts at all
}

// Visibility asks which tools an agent may call, in a run.
type Visibility struct {
	Agent id.Agent `json:"agent"`
	Run   id.Run   `json:"run,omitempty"`
	As    Listing  `json:"as,omitempty"`
	After string   `json:"after,omitempty"` // of Paged: the name of the last tool of the page before
}

// Listing is how tools are listed.
type Listing string

// The ways to list. Empty is every tool with its description and schema, which may be more than an answer carries.
const (
	Folded Listing = "folded" // three tools stand for those of a connection that has too many, see connection.Folded
	Names  Listing = "names"  // only names
	Paged  Listing = "paged"  // all of each tool, as many as an answer carries
)

// VisibleTool is a tool as an agent sees it.
type VisibleTool struct {
	Name        string          `json:"name"` // connection.tool
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	// Types tells a model, with the tool that runs scripts, which tools those may call. It is long, and apart from the
	// description because not every protocol takes a long one.
	Types  string            `json:"types,omitempty"`
	More   json.RawMessage   `json:"more,omitempty"` // of Paged: see connection.Tool
	Effect connection.Effect `json:"effect,omitempty"`
	Writes bool              `json:"writes,omitempty"`
}

// VisibleTools lists tools.
type VisibleTools struct {
	Tools []VisibleTool `json:"tools"`
	Rest  bool          `json:"rest,omitempty"` // of Paged: there are more after these
}

// ListForClient asks what MCP servers have for an external agent besides tools, by a method of MCP: resources/list,
// resources/templates/list or prompts/list.
type ListForClient struct {
	Agent      id.Agent    `json:"agent"`
	Run        id.Run      `json:"run"`
	Connection string      `json:"connection,omitempty"` // by name; empty: all
	Method     string      `json:"method"`
	Client     call.Client `json:"client"`
	Skip       int         `json:"skip,omitempty"` // how many came before
}

// ForClient is a page of what servers have. A server that does not answer is left out, and named.
type ForClient struct {
	Items  []ClientItem `json:"items"`
	Rest   bool         `json:"rest,omitempty"`
	Silent []string     `json:"silent,omitempty"`
}

// ClientItem is one resource, template or prompt, as its server described it.
type ClientItem struct {
	Connection string          `json:"connection"`
	Item       json.RawMessage `json:"item"`
}
