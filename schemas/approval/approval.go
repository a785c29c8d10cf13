// Package approval holds the events of a person's decision on one held call.
//
//	requested -> decided | expired
package approval

import (
	"time"

	"encoding/json"

	"github.com/execwarden/execwarden/schemas/id"
)

// Requested opens an approval. It is good for the one digest, once.
type Requested struct {
	Approval  id.Approval `json:"approval"`
	Call      id.Call     `json:"call"`
	Run       id.Run      `json:"run"`
	Agent     id.Agent    `json:"agent"`
	Tool      string      `json:"tool"`
	Grant     id.Grant    `json:"grant"`
	Digest    string      `json:"digest"`
	Reason    string      `json:"reason"`
	Requested uint64      `json:"requested_seq"` // EW_ACTIVITY sequence of the call's request
	ExpiresAt time.Time   `json:"expires_at"`
	Body      Shown       `json:"body"`
}

// Kind implements schemas.Event.
func (Requested) Kind() string { return "approval.requested" }

// Shown is what the person sees: exactly the arguments that the digest binds.
type Shown struct {
	Args json.RawMessage `json:"args"`
}

// Decided is a member's decision.
type Decided struct {
	Approval  id.Approval `json:"approval"`
	Call      id.Call     `json:"call"`
	Run       id.Run      `json:"run"`
	Digest    string      `json:"digest"`
	Approved  bool        `json:"approved"`
	By        id.Member   `json:"by"`
	Requested uint64      `json:"requested_seq"`
	Body      Note        `json:"body"`
}

// Kind implements schemas.Event.
func (Decided) Kind() string { return "approval.decided" }

// Note is what the member wrote with the decision.
type Note struct {
	Note string `json:"note,omitempty"`
}

// Expired says that nobody decided in time.
type Expired struct {
	Approval  id.Approval `json:"approval"`
	Call      id.Call     `json:"call"`
	Run       id.Run      `json:"run"`
	Digest    string      `json:"digest"`
	Requested uint64      `json:"requested_seq"`
}

// Kind implements schemas.Event.
func (Expired) Kind() string { return "approval.expired" }
