// Package target holds the events of the places where approvers are told.
package target

import "github.com/execwarden/execwarden/schemas/id"

// Type is the way to a target.
type Type string

// The ways.
const (
	Webhook Type = "webhook" // a POST signed as Standard Webhooks has it
	Slack   Type = "slack"   // an incoming webhook as Slack, Mattermost and others take
	Mail    Type = "mail"
)

// About is what a notice is about.
type About string

// What there is to tell.
const (
	Requested About = "requested" // a call waits for a person
	Escalated About = "escalated" // nobody decided for long
	Decided   About = "decided"
	Expired   About = "expired"
)

// Abouts lists them in the order in which they happen.
func Abouts() []About { return []About{Requested, Escalated, Decided, Expired} }

// Defined is the full state of a target. Its address is sealed elsewhere: a URL may hold a secret, and a mail address is
// a person's. Host is only where it leads; Fingerprint tells addresses apart.
type Defined struct {
	Target      id.Target `json:"target"`
	Type        Type      `json:"type"`
	Host        string    `json:"host,omitempty"` // of a webhook's URL
	About       []About   `json:"about"`
	Arguments   bool      `json:"arguments,omitempty"` // it is told the arguments too, which may hold what is not for everybody
	Private     []string  `json:"private,omitempty"`   // address:port pairs that may be reached although not public
	Fingerprint string    `json:"fingerprint,omitempty"`
	Removed     bool      `json:"removed,omitempty"`
}

// Kind implements schemas.Event.
func (Defined) Kind() string { return "target.defined" }
