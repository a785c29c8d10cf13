package connection

import "github.com/execwarden/execwarden/schemas/id"

// Updated is said live, and not stored: a resource of a connection changed, or may have.
type Updated struct {
	URI   string   `json:"uri"`
	Agent id.Agent `json:"agent,omitempty"` // under whose login; empty: the connection has one for all
}
