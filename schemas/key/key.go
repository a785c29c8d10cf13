// Package key holds the events of public keys that services publish.
package key

import (
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// Published makes a permit-signing key known. Signature is the deployment root key's Ed25519 signature over
// SignedBytes, so that a writer of events alone cannot introduce a key.
type Published struct {
	Key       id.Key    `json:"key"`
	Purpose   string    `json:"purpose"`
	Public    []byte    `json:"public"`
	NotBefore time.Time `json:"not_before"`
	Signature []byte    `json:"signature"`
}

// Kind implements schemas.Event.
func (Published) Kind() string { return "key.published" }

// SignedBytes is what the root key signs.
func (p Published) SignedBytes() []byte {
	return []byte("execwarden key.published v1\n" + string(p.Key) + "\n" + p.Purpose + "\n" +
		p.NotBefore.UTC().Format(time.RFC3339Nano) + "\n" + string(p.Public))
}
