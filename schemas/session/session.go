// Package session holds the events of a transcript that lasts over several runs.
package session

import "github.com/execwarden/execwarden/schemas/id"

// Opened says that a session exists and to which agent it belongs.
type Opened struct {
	Session id.Session `json:"session"`
	Agent   id.Agent   `json:"agent"`
}

// Kind implements schemas.Event.
func (Opened) Kind() string { return "session.opened" }
