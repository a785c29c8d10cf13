// Package environment holds the events of registered capacity.
package environment

import (
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// Driver is how an environment runs commands.
type Driver string

// The drivers.
const (
	Host   Driver = "host"
	Docker Driver = "docker"
)

// Valid says that a driver is one of those.
func (d Driver) Valid() bool { return d == Host || d == Docker }

// Registered is the full state of an environment's registration. Whether it is connected is presence, not state.
type Registered struct {
	Environment id.Environment `json:"environment"`
	Driver      Driver         `json:"driver"`
	Enrolment   *Enrolment     `json:"enrolment,omitempty"` // a token that nobody has used yet
	Connector   *Enrolled      `json:"connector,omitempty"` // whose machine it is; none: nobody's yet
	Draining    bool           `json:"draining,omitempty"`  // nothing is attached any more; what is goes on
	Removed     bool           `json:"removed,omitempty"`
}

// Kind implements schemas.Event.
func (Registered) Kind() string { return "environment.registered" }

// Enrolment is a token with which one connector may enrol, once. The token itself is nowhere.
type Enrolment struct {
	Digest    string    `json:"digest"` // SHA-256, hex
	ExpiresAt time.Time `json:"expires_at"`
}

// Enrolled is the identity of a connector: the public half of an NKey that it made itself.
type Enrolled struct {
	NKey  string    `json:"nkey"`
	Token string    `json:"token"` // the digest of the token that it enrolled with
	At    time.Time `json:"at"`
}

// Manifest is what a machine exposes by its own policy, and which isolation it really enforces.
type Manifest struct {
	Policy    string    `json:"policy"` // SHA-256 of the machine's policy, hex
	Platform  string    `json:"platform"`
	Isolation Isolation `json:"isolation"`
	Shell     bool      `json:"shell"`
	Network   string    `json:"network"` // "off", "targets", "all", or "docker:" and the name of a network of the machine's Docker engine
	Roots     []Root    `json:"roots,omitempty"`
	Programs  []string  `json:"programs,omitempty"` // that may be run; empty: any
	Preview   []string  `json:"preview,omitempty"`  // ports, or ranges of them, that a member may look at
	Browser   bool      `json:"browser,omitempty"`  // there is one, and it may be used
	Images    []string  `json:"images,omitempty"`   // that containers may be begun of
	Execs     int       `json:"execs"`              // at once
	Volumes   int       `json:"volumes"`            // how many may be made
	// Targets are what commands reach where Network is "targets".
	Targets []string `json:"targets,omitempty"`
	// PrivateHTTP are the services that the machine's connector asks for callers, with the methods that it may.
	PrivateHTTP []string `json:"private_http,omitempty"`
}

// Isolation is what holds a command back on a machine: each was tried there, not read from a setting.
type Isolation struct {
	NoNewPrivs bool `json:"no_new_privs"`
	Landlock   int  `json:"landlock,omitempty"` // the ABI that is enforced; 0: none
	Seccomp    bool `json:"seccomp"`
	Cgroup     bool `json:"cgroup"`    // a tree of processes can be killed at once
	Network    bool `json:"network"`   // commands have a network of their own
	Container  bool `json:"container"` // commands run in a container
}

// Root is a directory that a machine exposes besides volumes.
type Root struct {
	Path  string `json:"path"`
	Write bool   `json:"write,omitempty"`
}
