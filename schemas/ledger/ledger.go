// Package ledger holds the proofs that the activity ledger publishes. They stand outside every tree.
package ledger

import "github.com/execwarden/execwarden/schemas/id"

// Checkpointed is a signed tree head: a signed note (C2SP tlog-checkpoint) over origin, size and root.
type Checkpointed struct {
	Tenant id.Tenant `json:"tenant"`
	Stream string    `json:"stream"`
	Size   int64     `json:"size"`
	Root   string    `json:"root"` // base64
	Note   string    `json:"note"`
}

// Kind implements schemas.Event.
func (Checkpointed) Kind() string { return "ledger.checkpointed" }
