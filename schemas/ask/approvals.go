package ask

import (
	"encoding/json"

	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/target"
)

// DefineTarget makes or changes a place where approvers are told. Address is a URL or a mail address; empty keeps the one
// that is there. Secret signs a webhook's notices, as Standard Webhooks writes it (whsec_ and base64); empty keeps the one
// that is there, or has one made.
type DefineTarget struct {
	Target  target.Defined `json:"target"`
	Address string         `json:"address,omitempty"`
	Secret  string         `json:"secret,omitempty"`
}

// DefinedTarget is the answer. Secret is there when it was made, and is not shown again.
type DefinedTarget struct {
	Seq    uint64 `json:"seq"`
	Secret string `json:"secret,omitempty"`
}

// TestTarget has a notice sent that is about nothing.
type TestTarget struct {
	Target id.Target `json:"target"`
}

// DecideApproval is a member's decision. Digest is what they saw: it has to be what the approval is for.
type DecideApproval struct {
	Approval id.Approval `json:"approval"`
	Digest   string      `json:"digest"`
	Approve  bool        `json:"approve"`
	ForRun   bool        `json:"for_run,omitempty"` // later calls of the run like it, too: for members who may make grants
	Note     string      `json:"note,omitempty"`
}

// EditApproval puts other arguments in the place of those that wait. Digest is of what the member saw.
type EditApproval struct {
	Approval id.Approval     `json:"approval"`
	Digest   string          `json:"digest"`
	Args     json.RawMessage `json:"args"`
	Note     string          `json:"note,omitempty"`
}

// CheckEdit asks the broker what it would say of a held call with other arguments. Requested is the call's request.
type CheckEdit struct {
	Run       id.Run          `json:"run"`
	Call      id.Call         `json:"call"`
	Requested uint64          `json:"requested_seq"`
	Args      json.RawMessage `json:"args"`
}

// CheckedEdit is what a decision on edited arguments is about, and who has to make it. Args are as they would be sent.
type CheckedEdit struct {
	Args     json.RawMessage `json:"args"`
	Digest   string          `json:"digest"`
	Grant    id.Grant        `json:"grant"`
	Reason   string          `json:"reason"`
	Quorum   int             `json:"quorum,omitempty"`
	Approver member.Role     `json:"approver,omitempty"`
	FourEyes bool            `json:"four_eyes,omitempty"`
}

// ListApprovals asks for approvals; with Open, only those that wait. A page has what fits into one answer.
type ListApprovals struct {
	Open   bool   `json:"open"`
	Limit  int    `json:"limit,omitempty"`  // default and most: 100
	Before string `json:"before,omitempty"` // what the last page called next
}

// ShowApproval asks for one approval.
type ShowApproval struct {
	Approval id.Approval `json:"approval"`
}

// WithdrawApproval says that the agent whose call waits does not want it any more. Its answer is a Withdrawn.
type WithdrawApproval struct {
	Approval id.Approval `json:"approval"`
}

// Withdrawn says whether a withdrawal is what ended the approval; else it had been decided, or expired, before.
type Withdrawn struct {
	Withdrawn bool `json:"withdrawn"`
}

// Approval is an approval with what became of it. After an edit, the digest, the arguments and what the grant says are
// those of the last edit; Asked is what the agent asked for.
type Approval struct {
	approval.Requested
	State     string          `json:"state"` // "waiting", "approved", "denied", "expired"
	By        string          `json:"by,omitempty"`
	Escalated bool            `json:"escalated,omitempty"` // it waits for so long that more people were told
	ForRun    bool            `json:"for_run,omitempty"`   // approved for the rest of the run
	Votes     []id.Member     `json:"votes,omitempty"`     // who approved so far, while more have to
	Asked     json.RawMessage `json:"asked,omitempty"`     // the arguments before anybody edited them
	Editors   []id.Member     `json:"editors,omitempty"`   // who edited them, each once
}

// Approvals is a page of approvals, the newest request first.
type Approvals struct {
	Approvals []Approval `json:"approvals"`
	Next      string     `json:"next,omitempty"` // empty on the last page
}
