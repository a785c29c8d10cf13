// Package approval holds the events of a person's decision on one held call.
//
//	requested -> voted | edited | escalated ... -> decided | expired
package approval

import (
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Requested opens an approval. It is good for the one digest, once; an edit puts another in its place.
type Requested struct {
	Approval   id.Approval `json:"approval"`
	Call       id.Call     `json:"call"`
	Run        id.Run      `json:"run"`
	Agent      id.Agent    `json:"agent"`
	Tool       string      `json:"tool"`
	Grant      id.Grant    `json:"grant"`
	LentGrant  id.Grant    `json:"lent_grant,omitempty"` // the one on what a connection lends to the call, if one does
	Digest     string      `json:"digest"`
	Reason     string      `json:"reason"`
	Requested  uint64      `json:"requested_seq"`        // EW_ACTIVITY sequence of the call's request
	Quorum     int         `json:"quorum,omitempty"`     // members who have to approve; zero is one
	Approver   member.Role `json:"approver,omitempty"`   // the role that they need; empty: any that may approve
	FourEyes   bool        `json:"four_eyes,omitempty"`  // nobody approves what they asked for
	StartedBy  id.Member   `json:"started_by,omitempty"` // the member who started the run, and so asked for its calls
	EscalateAt time.Time   `json:"escalate_at,omitzero"` // when more people are told; zero: never
	ExpiresAt  time.Time   `json:"expires_at"`
	Body       Shown       `json:"body"`
}

// Kind implements schemas.Event.
func (Requested) Kind() string { return "approval.requested" }

// Shown is what the person sees: exactly what the digest binds, the arguments and what an MCP client answers with them to what
// its server asked (call.Args).
type Shown struct {
	Args  json.RawMessage `json:"args"`
	Input json.RawMessage `json:"input,omitempty"`
}

// Edited puts other arguments in the place of those that wait. Earlier votes are void. What the grants say of the new
// arguments may differ from what they said of the old ones, so it is said again. The editor counts as having asked.
type Edited struct {
	Approval id.Approval `json:"approval"`
	Call     id.Call     `json:"call"`
	Run      id.Run      `json:"run"`
	Replaces string      `json:"replaces"` // the digest of what waited before
	Digest   string      `json:"digest"`
	Grant    id.Grant    `json:"grant"`
	Reason   string      `json:"reason"` // why the new arguments wait
	Quorum   int         `json:"quorum,omitempty"`
	Approver member.Role `json:"approver,omitempty"`
	FourEyes bool        `json:"four_eyes,omitempty"`
	By       id.Member   `json:"by"`
	Body     Change      `json:"body"`
}

// Kind implements schemas.Event.
func (Edited) Kind() string { return "approval.edited" }

// Change is the new arguments, whole, and why.
type Change struct {
	Args json.RawMessage `json:"args"`
	Note string          `json:"note,omitempty"`
}

// Voted is an approval by one of several members that the quorum needs. It counts for its digest.
type Voted struct {
	Approval id.Approval `json:"approval"`
	Call     id.Call     `json:"call"`
	Run      id.Run      `json:"run"`
	Digest   string      `json:"digest"`
	By       id.Member   `json:"by"`
	ForRun   bool        `json:"for_run,omitempty"`
	Body     Note        `json:"body"`
}

// Kind implements schemas.Event.
func (Voted) Kind() string { return "approval.voted" }

// Decided is the decision: a member's denial, or the approval that completed the quorum. One for the run lets later calls
// of the run through without asking, as long as they are of the same tool, method and repository, under the same grant.
type Decided struct {
	Approval  id.Approval `json:"approval"`
	Call      id.Call     `json:"call"`
	Run       id.Run      `json:"run"`
	Digest    string      `json:"digest"`
	Approved  bool        `json:"approved"`
	By        id.Member   `json:"by"`
	Requested uint64      `json:"requested_seq"`
	Edited    uint64      `json:"edited_seq,omitempty"` // EW_ACTIVITY sequence of the edit that was decided on; zero: the request's own arguments
	ForRun    bool        `json:"for_run,omitempty"`
	Body      Note        `json:"body"`
}

// Kind implements schemas.Event.
func (Decided) Kind() string { return "approval.decided" }

// Note is what the member wrote with the decision.
type Note struct {
	Note string `json:"note,omitempty"`
}

// Escalated says that nobody decided for so long that more people are told. Who may decide stays as it was.
type Escalated struct {
	Approval id.Approval `json:"approval"`
	Call     id.Call     `json:"call"`
	Run      id.Run      `json:"run"`
	Digest   string      `json:"digest"`
}

// Kind implements schemas.Event.
func (Escalated) Kind() string { return "approval.escalated" }

// Expired says that nobody decided in time, or that there is nothing to decide any more.
type Expired struct {
	Approval  id.Approval `json:"approval"`
	Call      id.Call     `json:"call"`
	Run       id.Run      `json:"run"`
	Digest    string      `json:"digest"`
	Requested uint64      `json:"requested_seq"`
	Reason    string      `json:"reason,omitempty"` // why there is nothing to decide any more; empty: its time is over
}

// Withdrawn is the reason of an approval that ended because the agent gave its call up.
const Withdrawn = "the client gave the call up"

// Kind implements schemas.Event.
func (Expired) Kind() string { return "approval.expired" }
