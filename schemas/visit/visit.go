// Package visit holds the events of people on attached machines: a shell that somebody opened there, or a port that they
// look at. What a shell prints is stored as any command's output is, under the visit's id; what was typed is in no event.
package visit

import "github.com/execwarden/execwarden/schemas/id"

// Way is what a person does on a machine.
type Way string

// The ways.
const (
	Shell   Way = "shell"   // a command of theirs, at a terminal or between pipes
	Preview Way = "preview" // connections to a port that commands listen on
)

// Valid says that a way is one of those.
func (w Way) Valid() bool { return w == Shell || w == Preview }

// Admitted says that a member may come onto a machine, under the attachment that is there: the decision, before anything
// begins. Who it is is the event's actor.
type Admitted struct {
	Visit       id.Visit       `json:"visit"`
	Way         Way            `json:"way"`
	Environment id.Environment `json:"environment"`
	Volume      string         `json:"volume"` // its name
	Attachment  id.Attachment  `json:"attachment"`
	Epoch       int            `json:"epoch"`
	Argv        []string       `json:"argv,omitempty"` // of a shell; empty: the machine's login shell
	Terminal    bool           `json:"terminal,omitempty"`
	Port        int            `json:"port,omitempty"` // of a preview
}

// Kind implements schemas.Event.
func (Admitted) Kind() string { return "visit.admitted" }

// Ended says how a visit ended, as the machine tells it. A machine that is gone tells nothing: its attachment ends as lost.
type Ended struct {
	Visit       id.Visit       `json:"visit"`
	Environment id.Environment `json:"environment"`
	Reason      string         `json:"reason"`           // exited, hangup, revoked, and what else ends a command
	Code        int            `json:"code"`             // of a shell's command; -1: it was ended, or never began
	Signal      string         `json:"signal,omitempty"` // that ended it
	Streams     int            `json:"streams"`          // connections of a preview
	In          int64          `json:"in"`               // bytes that the person sent
	Out         int64          `json:"out"`              // bytes that came back
	SHA256      string         `json:"sha256,omitempty"` // of all that a shell printed, hex
	Survivors   int            `json:"survivors"`        // processes that were left
}

// Kind implements schemas.Event.
func (Ended) Kind() string { return "visit.ended" }
