// Package ask holds what services ask each other by RPC, and what they answer. schemas/asking.go says who may ask
// what.
package ask

import (
	"encoding/json"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/trigger"
)

// Sequence is where something stands on EW_CONTROL. It is the answer to every definition, and the question of a
// barrier.
type Sequence struct {
	Seq uint64 `json:"seq"`
}

// InForce says that nothing acts any more on what was before the event at a sequence of EW_CONTROL.
type InForce struct {
	Seq         uint64   `json:"seq"`
	Heard       int      `json:"heard"`            // instances that have heard it
	Fenced      []string `json:"fenced,omitempty"` // instances that have not, and start nothing until they have
	ConfirmedMS float64  `json:"confirmed_ms"`     // how long that took, in milliseconds
}

// DefineHook makes or changes a webhook endpoint. Secret replaces the one that is there.
type DefineHook struct {
	Hook   id.Hook `json:"hook"`
	Secret string  `json:"secret"`
}

// DefineTrigger makes or changes a trigger.
type DefineTrigger struct {
	Trigger trigger.Defined `json:"trigger"`
}

// StartRun asks for a run. A run that exists already is answered as when it was made, so a run with a derived id is
// started once however often it is asked for.
type StartRun struct {
	Run      id.Run          `json:"run,omitempty"` // default: a fresh one
	Agent    id.Agent        `json:"agent"`
	Prompt   string          `json:"prompt"`
	Script   string          `json:"script,omitempty"` // runs this as the agent, and asks no model; Prompt is its name then
	Input    json.RawMessage `json:"input,omitempty"`  // of Script: an object
	Trigger  id.Trigger      `json:"trigger,omitempty"`
	Delivery id.Delivery     `json:"delivery,omitempty"`
	Taint    []string        `json:"taint,omitempty"`
}

// Started is a run that exists.
type Started struct {
	Run id.Run `json:"run"`
	Seq uint64 `json:"seq"` // on EW_ACTIVITY
}

// SetModelKey gives the agent loop the key with which it reaches an agent's model.
type SetModelKey struct {
	Agent id.Agent `json:"agent"`
	Key   string   `json:"key"`
}

// Done is the answer to what gives nothing back.
type Done struct{}

// CancelRun asks for a run to stop.
type CancelRun struct {
	Run    id.Run `json:"run"`
	Reason string `json:"reason,omitempty"`
}
