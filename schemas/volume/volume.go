// Package volume holds the events of sandbox directories on environments, and of who holds them.
package volume

import (
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// Defined is the full state of a volume. Its aggregate is appended by CAS, and so a volume has one writer: whoever is
// attached.
type Defined struct {
	Volume      id.Volume      `json:"volume"`
	Environment id.Environment `json:"environment"`
	Name        string         `json:"name"`
	Epoch       int            `json:"epoch"`                 // of its newest attachment; orders of an older one are refused
	Attached    *Attachment    `json:"attached,omitempty"`    // none: free
	Ended       *End           `json:"ended,omitempty"`       // of the last attachment, once it has
	Generation  int            `json:"generation,omitempty"`  // of the newest checkpoint that was asked for; none has a number of another
	Checkpoints []Checkpoint   `json:"checkpoints,omitempty"` // that its machine keeps, the oldest first
	Restored    *Restored      `json:"restored,omitempty"`    // what was last brought back
	From        string         `json:"from,omitempty"`        // the volume that it was cloned from
	Removed     bool           `json:"removed,omitempty"`
}

// Kind implements schemas.Event.
func (Defined) Kind() string { return "volume.defined" }

// Checkpoint is what a volume held at a moment. It is on the machine; what is recorded here says whether it still is that.
type Checkpoint struct {
	Generation int       `json:"generation"`
	Manifest   string    `json:"manifest"` // SHA-256 of the manifest, which has path, mode, size and SHA-256 of every file; hex
	Files      int       `json:"files"`
	Bytes      int64     `json:"bytes"`
	Skipped    int       `json:"skipped,omitempty"` // pipes, sockets and devices, which hold nothing
	At         time.Time `json:"at"`
}

// Restored says that a checkpoint was brought back.
type Restored struct {
	Generation int       `json:"generation"`
	At         time.Time `json:"at"`
}

// Attachment is a lease: it binds a volume to whoever works on it.
type Attachment struct {
	Attachment id.Attachment `json:"attachment"`
	Holder     Holder        `json:"holder"`
	Since      time.Time     `json:"since"`
	Draining   bool          `json:"draining,omitempty"` // nothing new begins
}

// Holder is who an attachment is for: exactly one of its fields is set.
type Holder struct {
	Agent   id.Agent   `json:"agent,omitempty"`   // every run and conversation of the agent
	Session id.Session `json:"session,omitempty"` // every run of the session
	Run     id.Run     `json:"run,omitempty"`
}

// One says that exactly one field is set.
func (h Holder) One() bool {
	n := 0
	for _, set := range []bool{h.Agent != "", h.Session != "", h.Run != ""} {
		if set {
			n++
		}
	}
	return n == 1
}

// End is how an attachment ended.
type End struct {
	Attachment id.Attachment `json:"attachment"`
	How        How           `json:"how"`
	At         time.Time     `json:"at"`
	Reason     string        `json:"reason,omitempty"`
	Survivors  int           `json:"survivors,omitempty"` // processes that outlived the end, as the machine counted; -1: it was not there to count
}

// How an attachment ends.
type How string

// The ends.
const (
	Released How = "released" // its work was done
	Revoked  How = "revoked"  // somebody took it away: what ran was killed
	Lost     How = "lost"     // the machine did not come back
)

// For finds the volume that a call works on: the one attached to its run, or else to its session, or else to its agent.
// Broker and registry both choose by it.
func For(all []Defined, run id.Run, session id.Session, agent id.Agent) (Defined, bool) {
	for _, is := range []func(Holder) bool{
		func(h Holder) bool { return h.Run != "" && h.Run == run },
		func(h Holder) bool { return h.Session != "" && h.Session == session },
		func(h Holder) bool { return h.Agent != "" && h.Agent == agent },
	} {
		for _, v := range all {
			if v.Attached != nil && !v.Removed && is(v.Attached.Holder) {
				return v, true
			}
		}
	}
	return Defined{}, false
}
