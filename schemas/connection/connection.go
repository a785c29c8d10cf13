// Package connection holds the events of a configured provider.
package connection

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// Type is the sort of provider.
type Type string

// The providers that the tool broker speaks to.
const (
	GitHub Type = "github"
	MCP    Type = "mcp"
	API    Type = "api" // an API package: an OpenAPI document and a manifest
)

// Defined is the full state of a connection. Its credential is sealed elsewhere; Credential is only a fingerprint
// of it, empty when there is none.
type Defined struct {
	Connection id.Connection `json:"connection"`
	Type       Type          `json:"type"`
	URL        string        `json:"url"`
	Private    []string      `json:"private,omitempty"` // address:port pairs that may be reached although not public
	Hosts      []string      `json:"hosts,omitempty"`   // where the provider keeps files, such as logs: read without the credential
	Trusted    bool          `json:"trusted,omitempty"` // its results do not taint a run
	Credential string        `json:"credential,omitempty"`
	Removed    bool          `json:"removed,omitempty"`
}

// Kind implements schemas.Event.
func (Defined) Kind() string { return "connection.defined" }

// Packaged is the API package of a connection, imported and compiled. Body holds all that is needed to call it.
type Packaged struct {
	Connection id.Connection `json:"connection"`
	Name       string        `json:"name"`
	Version    string        `json:"version"`
	Digest     string        `json:"digest"` // of the document's files and the manifest
	Operations int           `json:"operations"`
	Body       Package       `json:"body"`
}

// Kind implements schemas.Event.
func (Packaged) Kind() string { return "connection.packaged" }

// Package is a compiled API package, in the broker's own form.
type Package struct {
	Package json.RawMessage `json:"package"`
}

// Listed is the full list of a connection's tools, as the provider described them.
type Listed struct {
	Connection id.Connection `json:"connection"`
	Body       Tools         `json:"body"` // a body, since some providers have a thousand
}

// Tools is a list of tools.
type Tools struct {
	Tools []Tool `json:"tools"`
}

// Kind implements schemas.Event.
func (Listed) Kind() string { return "connection.listed" }

// Effect is the effect class of a tool: what may be done when it is not known whether a call took effect.
type Effect string

// The effect classes. A pure call may be repeated, a keyed one repeated with its key, a probeable one looked up; an
// opaque one is never repeated by us.
const (
	Pure      Effect = "pure"
	Keyed     Effect = "keyed"
	Probeable Effect = "probeable"
	Opaque    Effect = "opaque"
)

// Tool is one callable of a connection.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
	Effect      Effect          `json:"effect"`
	Writes      bool            `json:"writes"`
	// ChangedAt is when the provider was first seen to describe the tool otherwise than before; zero while it never
	// was. A grant from before that time holds the tool's calls.
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// SameAs says whether a provider describes a tool as before.
func (t Tool) SameAs(before Tool) bool {
	return t.Name == before.Name && t.Description == before.Description && bytes.Equal(t.Schema, before.Schema) &&
		t.Effect == before.Effect && t.Writes == before.Writes
}
