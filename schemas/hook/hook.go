// Package hook holds the events of a delivery to a webhook endpoint.
//
//	received -> routed | ignored
package hook

import (
	"github.com/execwarden/execwarden/schemas/id"
)

// Received is an authentic delivery, before anybody looked into it.
type Received struct {
	Delivery id.Delivery `json:"delivery"` // derived from the hook and the provider's delivery id
	Hook     id.Hook     `json:"hook"`
	GUID     string      `json:"guid"`
	Event    string      `json:"event"` // the provider's name, such as "issues"
	Body     Payload     `json:"body"`
}

// Kind implements schemas.Event.
func (Received) Kind() string { return "hook.received" }

// Payload holds the bytes that were signed, as they came. They may be no JSON at all.
type Payload struct {
	Payload []byte `json:"payload"`
}

// Routed says which runs a delivery started.
type Routed struct {
	Delivery id.Delivery `json:"delivery"`
	Runs     []id.Run    `json:"runs"`
}

// Kind implements schemas.Event.
func (Routed) Kind() string { return "hook.routed" }

// Ignored says why a delivery started nothing.
type Ignored struct {
	Delivery id.Delivery `json:"delivery"`
	Reason   string      `json:"reason"`
}

// Kind implements schemas.Event.
func (Ignored) Kind() string { return "hook.ignored" }
