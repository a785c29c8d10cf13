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
	GitURL     string        `json:"git_url,omitempty"` // of a GitHub's git server; default: derived from URL
	Private    []string      `json:"private,omitempty"` // address:port pairs that may be reached although not public
	Hosts      []string      `json:"hosts,omitempty"`   // where the provider keeps files, such as logs: read without the credential
	Trusted    bool          `json:"trusted,omitempty"` // its results do not taint a run
	OAuth      OAuth         `json:"oauth,omitzero"`    // how the broker gets tokens; of type mcp only
	Credential string        `json:"credential,omitempty"`
	Removed    bool          `json:"removed,omitempty"`
}

// Kind implements schemas.Event.
func (Defined) Kind() string { return "connection.defined" }

// Flow is how an OAuth 2.1 client gets its tokens.
type Flow string

// The flows. In the first a member logs in, in a browser; in the second the client stands for itself.
const (
	AuthorizationCode Flow = "authorization_code"
	ClientCredentials Flow = "client_credentials"
)

// OAuth says that a connection's tokens come from an authorization server, which the provider names. The connection's
// credential is then the client's secret, if it has one.
type OAuth struct {
	Flow     Flow     `json:"flow,omitempty"`
	ClientID string   `json:"client_id,omitempty"` // of a client that was registered by hand, or its document's URL; empty: the broker registers one (RFC 7591)
	Scopes   []string `json:"scopes,omitempty"`    // empty: what the provider asks for
	PerAgent bool     `json:"per_agent,omitempty"` // each agent has a login of its own, and the connection's own lists the tools and no more
}

// Login says whether a connection has the tokens that it needs.
type Login string

// The states of a login.
const (
	LoggedIn    Login = "done"
	LoginNeeded Login = "needed" // a member has to log in, or an admin to mend the client
)

// LoginChanged is the full state of a connection's login, as it was defined then: with another URL or OAuth it is no
// login of it. It holds no token.
type LoginChanged struct {
	Connection id.Connection `json:"connection"`
	Agent      id.Agent      `json:"agent,omitempty"` // whose login it is, where each agent has its own; empty: the connection's
	URL        string        `json:"url"`
	OAuth      OAuth         `json:"oauth"`
	State      Login         `json:"state"`
	Attempt    id.Login      `json:"attempt,omitempty"` // the login that this is about, if it is about one
	Reason     string        `json:"reason,omitempty"`  // why a login is needed, which scopes the provider wants besides, or why the attempt failed
	Failed     bool          `json:"failed,omitempty"`  // the attempt failed, and the state is what it was before
	By         id.Member     `json:"by,omitempty"`      // who logged in last
	Issuer     string        `json:"issuer,omitempty"`
	Scopes     []string      `json:"scopes,omitempty"` // as they were granted
}

// Kind implements schemas.Event.
func (LoginChanged) Kind() string { return "connection.login_changed" }

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
	Lent        bool            `json:"lent,omitempty"` // done by a machine's tool with the connection's credential, and not by itself
	More        json.RawMessage `json:"more,omitempty"` // what else an MCP server says of it: title, outputSchema, annotations, icons, _meta
	// ChangedAt is when the provider was first seen to describe the tool otherwise than before; zero while it never
	// was. A grant from before that time holds the tool's calls.
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// SameAs says whether a provider describes a tool as before.
func (t Tool) SameAs(before Tool) bool {
	return t.Name == before.Name && t.Description == before.Description && bytes.Equal(t.Schema, before.Schema) &&
		t.Effect == before.Effect && t.Writes == before.Writes && t.Lent == before.Lent && bytes.Equal(t.More, before.More)
}
