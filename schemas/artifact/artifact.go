// Package artifact holds the events of what scripts keep for later scripts of their session, and for people: named
// texts, JSON values and bytes. They are the session's, and age out with its activity.
package artifact

import "github.com/execwarden/execwarden/schemas/id"

// Type is how a script gave a value, and gets it back.
type Type string

// The types of values.
const (
	Text  Type = "text"
	JSON  Type = "json"
	Bytes Type = "bytes"
)

// Origin is the place in a script that an event follows from: a script that is run again keeps nothing twice. Owner is
// the session that the run belongs to, or the run or conversation itself where there is no session.
type Origin struct {
	Owner string  `json:"owner"`
	Run   id.Run  `json:"run"`
	Call  id.Call `json:"call"`
	Seq   int     `json:"seq"`
}

// Kept says that a value is kept under a name, in place of what was there. Taint is of where the value may come from.
type Kept struct {
	Origin
	Name   string   `json:"name"`
	Type   Type     `json:"type"`
	Size   int      `json:"size"`   // bytes
	Digest string   `json:"digest"` // SHA-256 of the bytes
	Taint  []string `json:"taint,omitempty"`
	Body   Value    `json:"body"`
}

// Kind implements schemas.Event.
func (Kept) Kind() string { return "artifact.kept" }

// Value is what is kept: a text in UTF-8, JSON, or any bytes.
type Value struct {
	Value []byte `json:"value"`
}

// Removed says that nothing is kept under a name any more.
type Removed struct {
	Origin
	Name string `json:"name"`
}

// Kind implements schemas.Event.
func (Removed) Kind() string { return "artifact.removed" }

// Refused says that a value was not kept, so that the script is refused again when it is run again.
type Refused struct {
	Origin
	Name    string `json:"name"`
	Digest  string `json:"digest"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Kind implements schemas.Event.
func (Refused) Kind() string { return "artifact.refused" }
