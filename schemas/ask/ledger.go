package ask

import (
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// Event is an event as the ledger recorded it. Raw is the envelope's exact bytes; for what could not be decoded they
// may be no JSON.
type Event struct {
	Stream   string    `json:"stream"`
	Seq      uint64    `json:"seq"`
	Subject  string    `json:"subject"`
	Kind     string    `json:"kind"`
	Raw      []byte    `json:"raw"`
	StoredAt time.Time `json:"stored_at"`
}

// Events asks for recorded events after a cursor. Run, Kind (a glob with '*') and Actor narrow it.
type Events struct {
	After Cursor `json:"after"`
	Run   id.Run `json:"run,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Actor string `json:"actor,omitempty"`
	Limit int    `json:"limit,omitempty"` // default and most: 200
}

// EventPage is a page of events, each stream's in order, and where to go on.
type EventPage struct {
	Events []Event `json:"events"`
	Next   Cursor  `json:"next"`
	More   bool    `json:"more"`
}

// Runs asks for the newest runs.
type Runs struct {
	Limit  int    `json:"limit,omitempty"` // default 50, most 200
	Before string `json:"before,omitempty"`
}

// RunRow is a run in a list.
type RunRow struct {
	Run     id.Run    `json:"run"`
	Agent   id.Agent  `json:"agent"`
	State   string    `json:"state"` // "running", "waiting_approval", "completed", "failed", "cancelled"
	Trigger string    `json:"trigger,omitempty"`
	Created time.Time `json:"created"`
	Ended   time.Time `json:"ended,omitzero"`
	Events  int       `json:"events"`
	Message string    `json:"message,omitempty"` // the result, or why there is none
}

// RunPage is a page of runs.
type RunPage struct {
	Runs []RunRow `json:"runs"`
	Next string   `json:"next,omitempty"`
}

// Timeline asks for everything that happened in a run.
type Timeline struct {
	Run   id.Run `json:"run"`
	After uint64 `json:"after,omitempty"` // EW_ACTIVITY sequence to go on from
}

// Verify asks the ledger to prove itself for the tenant.
type Verify struct{}

// Verified is the outcome of a verification.
type Verified struct {
	Verdict     string   `json:"verdict"` // "verified", "tampered", "incomplete", "unverifiable"
	Leaves      int64    `json:"leaves"`
	Checkpoints int      `json:"checkpoints"`
	Trees       []Tree   `json:"trees"`
	Faults      []string `json:"faults,omitempty"`
}

// Tree is one stream's tree of a tenant.
type Tree struct {
	Stream string `json:"stream"`
	Size   int64  `json:"size"`
	Root   string `json:"root"`
}

// Position asks how far the ledger has recorded the streams.
type Position struct{}
