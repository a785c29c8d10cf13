package ask

import (
	"time"

	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/volume"
)

// DefineEnvironment makes an environment. Its driver cannot be changed once a machine has enrolled.
type DefineEnvironment struct {
	Environment id.Environment     `json:"environment"`
	Driver      environment.Driver `json:"driver"`
}

// RemoveEnvironment removes an environment: its attachments are revoked, and its connector is let in no more.
type RemoveEnvironment struct {
	Environment id.Environment `json:"environment"`
	Reason      string         `json:"reason,omitempty"`
}

// DrainEnvironment lets nothing be attached to an environment any more, or again. What is attached goes on.
type DrainEnvironment struct {
	Environment id.Environment `json:"environment"`
	Off         bool           `json:"off,omitempty"`
}

// ListEnvironments asks for the environments of the tenant, with what is known of their machines at this moment.
type ListEnvironments struct{}

// Environments answers it.
type Environments struct {
	Environments []Environment `json:"environments"`
}

// Environment is one environment as it stands.
type Environment struct {
	Environment id.Environment        `json:"environment"`
	Driver      environment.Driver    `json:"driver"`
	State       Presence              `json:"state"`
	Draining    bool                  `json:"draining,omitempty"` // nothing is attached any more
	Fault       string                `json:"fault,omitempty"`    // what its machine could not do
	Seen        time.Time             `json:"seen,omitzero"`
	Execs       int                   `json:"execs"` // that run
	EnrolledAt  time.Time             `json:"enrolled_at,omitzero"`
	Instance    string                `json:"instance,omitempty"`
	Version     string                `json:"version,omitempty"`
	Manifest    *environment.Manifest `json:"manifest,omitempty"`
	Volumes     []volume.Defined      `json:"volumes"`
}

// Presence is whether a machine is there.
type Presence string

// The states of presence.
const (
	NotEnrolled Presence = "not_enrolled"
	Invited     Presence = "invited" // a token waits to be used
	Online      Presence = "online"  // it ran a command and moved a file within the last 30 s
	Faulty      Presence = "faulty"  // it is there, and could not
	Offline     Presence = "offline"
)

// CreateEnrolment lets one connector enrol with the token of this digest. It replaces a token that nobody used.
type CreateEnrolment struct {
	Environment id.Environment `json:"environment"`
	Digest      string         `json:"digest"` // SHA-256 of the token, hex
	ExpiresAt   time.Time      `json:"expires_at"`
	Replace     bool           `json:"replace,omitempty"` // the machine that has enrolled, if one has
}

// EnrolConnector enrols a connector.
type EnrolConnector struct {
	Environment id.Environment  `json:"environment"`
	Enrol       connector.Enrol `json:"enrol"`
}

// Attach binds a volume, which is made when there is none of the name, to whoever works on it.
type Attach struct {
	Environment id.Environment `json:"environment"`
	Volume      string         `json:"volume"` // its name; empty: "main"
	Holder      volume.Holder  `json:"holder"`
}

// Release ends an attachment.
type Release struct {
	Environment id.Environment `json:"environment"`
	Volume      string         `json:"volume"`
	Revoke      bool           `json:"revoke,omitempty"` // kill what runs; otherwise it is given the time to end
	Reason      string         `json:"reason,omitempty"`
}

// Released answers Release, once the machine has ended what ran, or is not there to.
type Released struct {
	Volume    volume.Defined `json:"volume"`
	Killed    int            `json:"killed"`
	Survivors int            `json:"survivors"` // -1: the machine was not there to count; its lease lapses
	Took      time.Duration  `json:"took"`
}

// ReadOutput asks for what a call on a machine printed, as it is stored, from a place on.
type ReadOutput struct {
	Call  id.Call `json:"call"`
	After uint64  `json:"after,omitempty"` // Next of the page before
}

// Output is a page of it.
type Output struct {
	Pieces []OutputPiece `json:"pieces"`
	Next   uint64        `json:"next"`
	End    *machine.Exec `json:"end,omitempty"` // how the command ended, once all of its output was given
}

// OutputPiece is output of one stream, or a gap.
type OutputPiece struct {
	Stream string `json:"stream"` // stdout, stderr, gap
	Offset int64  `json:"offset"` // of the first byte, of both streams together
	Data   []byte `json:"data,omitempty"`
	Lost   int64  `json:"lost,omitempty"` // bytes of a gap
}

// CheckpointVolume keeps what a volume holds. Nothing may run on it.
type CheckpointVolume struct {
	Environment id.Environment `json:"environment"`
	Volume      string         `json:"volume"` // its name; empty: "main"
}

// RestoreVolume brings a checkpoint back. Nobody may hold the volume.
type RestoreVolume struct {
	Environment id.Environment `json:"environment"`
	Volume      string         `json:"volume"`
	Checkpoint  int            `json:"checkpoint"` // its generation
}

// CloneVolume makes a volume that holds what another does at this moment.
type CloneVolume struct {
	Environment id.Environment `json:"environment"`
	Volume      string         `json:"volume"`
	To          string         `json:"to"`
}
