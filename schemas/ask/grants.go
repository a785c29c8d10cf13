package ask

import (
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// CreateGrant makes a grant.
type CreateGrant struct {
	Grant grant.Created `json:"grant"`
}

// RevokeGrant ends a grant.
type RevokeGrant struct {
	Grant  id.Grant `json:"grant"`
	Reason string   `json:"reason,omitempty"`
}

// ShowAccess asks what an agent could do, and what would become of calls that nobody asked for yet; at most MaxPlanned.
type ShowAccess struct {
	Agent id.Agent      `json:"agent"`
	Calls []PlannedCall `json:"calls,omitempty"`
}

// MaxPlanned is how many planned calls one question has.
const MaxPlanned = 100

// PlannedCall is a call that nobody asked for yet.
type PlannedCall struct {
	Tool    string          `json:"tool"`
	Args    json.RawMessage `json:"args"`
	Tainted bool            `json:"tainted,omitempty"` // the run has read content that nobody vouches for by then
}

// Access is what an agent could do, tool by tool, and what would become of the calls that were planned.
type Access struct {
	Agent agent.Defined `json:"agent"` // without its instructions
	Tools []Reach       `json:"tools"`
	Calls []Foreseen    `json:"calls,omitempty"`
}

// Foreseen is a planned call with what would become of it now. Limits are not looked at: they depend on what was let
// through.
type Foreseen struct {
	PlannedCall
	Decision SimulatedDecision `json:"decision"`
}

// Reach is what an agent could do with one tool.
type Reach struct {
	Tool   string            `json:"tool"`
	Effect connection.Effect `json:"effect"`
	Writes bool              `json:"writes"`
	Word   string            `json:"word"` // "allowed", "held", "depends", "denied"
	Why    string            `json:"why"`
	Rules  []Rule            `json:"rules,omitempty"`
}

// Rule is what one grant says of a tool.
type Rule struct {
	Grant   id.Grant      `json:"grant"`
	Verdict grant.Verdict `json:"verdict"`
	Text    string        `json:"text"`
}

// SimulateGrant asks what recorded calls of the grant's agent would come to with the grant.
type SimulateGrant struct {
	Grant grant.Created `json:"grant"`
	Since time.Time     `json:"since"`
}

// Simulation is where recorded calls would come to something else.
type Simulation struct {
	Looked    int             `json:"looked"` // calls that were decided anew
	Differ    int             `json:"differ"`
	Changed   []SimulatedCall `json:"changed"`             // at most 200 of those that differ
	Truncated bool            `json:"truncated,omitempty"` // there were more calls than one simulation looks at
}

// SimulatedCall is a recorded call, decided as things are and as they would be.
type SimulatedCall struct {
	Call id.Call           `json:"call"`
	Run  id.Run            `json:"run"`
	Tool string            `json:"tool"`
	At   time.Time         `json:"at"`
	Args string            `json:"args"` // the beginning of them
	Now  SimulatedDecision `json:"now"`
	Then SimulatedDecision `json:"then"`
}

// SimulatedDecision is a decision that was not made.
type SimulatedDecision struct {
	Word   string   `json:"word"` // "allowed", "held", "refused"
	Grant  id.Grant `json:"grant,omitempty"`
	Reason string   `json:"reason"`
}
