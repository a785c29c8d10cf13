// Package approval holds the events of a person's decision on one held call.
//
//	requested -> voted ... -> decided | expired
package approval

import (
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
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
	Requested uint64      `json:"requested_seq"`      // EW_ACTIVITY sequence of the call's request
	Quorum    int         `json:"quorum,omitempty"`   // members who have to approve; zero is one
	Approver  member.Role `json:"approver,omitempty"` // the role that they need; empty: any that may approve
	ExpiresAt time.Time   `json:"expires_at"`
	Body      Shown       `json:"body"`
}

// Kind implements schemas.Event.
func (Requested) Kind() string { return "approval.requested" }

// Shown is what the person sees: exactly the arguments that the digest binds.
type Shown struct {
	Args json.RawMessage `json:"args"`
}

// Voted is an approval by one of several members that the quorum needs. It counts for its digest.
type Voted struct {
	Approval id.Approval `json:"approval"`
	Call     id.Call     `json:"call"`
	Run      id.Run      `json:"run"`
	Digest   string      `json:"digest"`
	By       id.Member   `json:"by"`
	Body     Note        `json:"body"`
}

// Kind implements schemas.Event.
func (Voted) Kind() string { return "approval.voted" }

// Decided is the decision: a member's denial, or the approval that completed the quorum.
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
