// Package environment holds the events of registered capacity.
package environment

import "github.com/execwarden/execwarden/schemas/id"

// Driver is how an environment runs commands.
type Driver string

// The drivers.
const (
	Host   Driver = "host"
	Docker Driver = "docker"
)

// Registered is the full state of an environment's registration. Whether it is connected is presence, not state.
type Registered struct {
	Environment id.Environment `json:"environment"`
	Driver      Driver         `json:"driver"`
	Removed     bool           `json:"removed,omitempty"`
}

// Kind implements schemas.Event.
func (Registered) Kind() string { return "environment.registered" }
