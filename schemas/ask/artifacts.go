package ask

import (
	"time"

	"github.com/execwarden/execwarden/schemas/artifact"
	"github.com/execwarden/execwarden/schemas/id"
)

// ListArtifacts asks what is kept for a session, a run of one, or a conversation of an external agent.
type ListArtifacts struct {
	Of string `json:"of"`
}

// Artifacts lists what is kept, by name. Owner is the session, or the run or conversation that is in none.
type Artifacts struct {
	Owner     string     `json:"owner"`
	Artifacts []Artifact `json:"artifacts"`
}

// Artifact is a kept value without the value.
type Artifact struct {
	Name   string        `json:"name"`
	Type   artifact.Type `json:"type"`
	Size   int           `json:"size"` // bytes
	Digest string        `json:"digest"`
	Run    id.Run        `json:"run"`
	Call   id.Call       `json:"call"` // the script
	KeptAt time.Time     `json:"kept_at"`
	Taint  []string      `json:"taint,omitempty"`
}

// GetArtifact asks for a value.
type GetArtifact struct {
	Of   string `json:"of"`
	Name string `json:"name"`
}

// GotArtifact is a value. One that an answer does not hold is in the blob store, as Upload, where the asker reads it.
type GotArtifact struct {
	Artifact Artifact `json:"artifact"`
	Value    []byte   `json:"value,omitempty"`
	Upload   string   `json:"upload,omitempty"`
}
