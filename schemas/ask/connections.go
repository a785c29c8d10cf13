package ask

import (
	"time"

	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// DefineConnection makes or changes a connection. Credential replaces the one that is there; empty keeps it.
type DefineConnection struct {
	Connection connection.Defined `json:"connection"`
	Credential string             `json:"credential,omitempty"`
}

// DiffConnection asks which tools of a connection are described otherwise than when they were granted.
type DiffConnection struct {
	Connection id.Connection `json:"connection"`
}

// ConnectionDiff is what changed under grants.
type ConnectionDiff struct {
	Tools     []ToolDiff `json:"tools"`
	Truncated bool       `json:"truncated,omitempty"` // there is more than one answer holds
}

// ToolDiff is how the description of a tool differs from what some grants were made for.
type ToolDiff struct {
	Tool      string        `json:"tool"` // connection.tool
	ChangedAt time.Time     `json:"changed_at"`
	Grants    []id.Grant    `json:"grants"`  // that hold the tool's calls because of it
	Changes   []FieldChange `json:"changes"` // at most 100; none when what was granted is not recorded
}

// FieldChange is a part of a tool's description that differs. Old or New is empty when it was not there, or is not.
type FieldChange struct {
	Field string `json:"field"` // "description", "effect", "writes", or a path such as "schema.properties.to.type"
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// BeginLogin asks for the way to log in to a connection's provider. Redirect is where the browser comes back to.
type BeginLogin struct {
	Connection id.Connection `json:"connection"`
	Agent      id.Agent      `json:"agent,omitempty"` // whose login it is to be; empty: the connection's own
	Redirect   string        `json:"redirect"`
	Document   string        `json:"document,omitempty"` // the URL that says what client this site is; empty: others cannot read it
}

// LoginBegun is a login that waits for a member in a browser. The connection.login_changed of Attempt says how it ended.
type LoginBegun struct {
	Attempt   id.Login  `json:"attempt"`
	URL       string    `json:"url"` // where the member logs in; whoever has it can finish this login
	ExpiresAt time.Time `json:"expires_at"`
}

// LookLogin asks what login a state belongs to. It uses nothing up.
type LookLogin struct {
	State string `json:"state"`
}

// WaitingLogin is a login that waits.
type WaitingLogin struct {
	Connection id.Connection `json:"connection"`
	Agent      id.Agent      `json:"agent,omitempty"`
	URL        string        `json:"url"`    // of the connection
	Issuer     string        `json:"issuer"` // of the authorization server
	By         id.Member     `json:"by"`     // who began it
}

// FinishLogin is what the authorization server sent the browser back with. A state is used up by it.
type FinishLogin struct {
	State       string `json:"state"`
	Code        string `json:"code,omitempty"`
	Issuer      string `json:"issuer,omitempty"`      // RFC 9207
	Error       string `json:"error,omitempty"`       // RFC 6749 section 4.1.2.1, in place of a code
	Description string `json:"description,omitempty"` // of the error
}

// FinishedLogin is a login that succeeded.
type FinishedLogin struct {
	Connection id.Connection `json:"connection"`
}

// ImportPackage makes or changes the API package of a connection of type api. Upload is a zip archive in the blob store,
// with the manifest as manifest.yaml beside the document's files.
type ImportPackage struct {
	Connection id.Connection `json:"connection"`
	Upload     string        `json:"upload"`
	Document   string        `json:"document"`
}

// Imported is what an import came to.
type Imported struct {
	Seq        uint64   `json:"seq"`
	Digest     string   `json:"digest"`
	Operations int      `json:"operations"`
	Changes    []string `json:"changes"`            // against the package that was there, a line each; at most 200
	Warnings   []string `json:"warnings,omitempty"` // what the document lacks, a line each; at most 100
}
