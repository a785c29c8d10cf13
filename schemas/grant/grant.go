// Package grant holds the events of the permission of one agent to call some tools.
package grant

import (
	"time"

	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Created is the full state of an active grant.
type Created struct {
	Grant     id.Grant `json:"grant"`
	Agent     id.Agent `json:"agent"`
	Run       id.Run   `json:"run,omitempty"` // when set, the grant serves this run only
	Verdict   Verdict  `json:"verdict,omitempty"`
	Selector  Selector `json:"selector"`
	Condition string   `json:"condition,omitempty"` // CEL over the call; empty: it always holds

	Approval      Approval    `json:"approval"`
	ApproveWhen   string      `json:"approve_when,omitempty"`     // CEL; for the rule "when"
	Quorum        int         `json:"quorum,omitempty"`           // members who have to approve; zero is one
	Approver      member.Role `json:"approver,omitempty"`         // the role that they need; empty: any that may approve
	FourEyes      bool        `json:"four_eyes,omitempty"`        // nobody approves what they asked for: a run that they started, arguments that they edited
	EscalateAfter int         `json:"escalate_after_s,omitempty"` // seconds that a call waits before more people are told; zero: it does not escalate
	Tainted       bool        `json:"tainted,omitempty"`          // writes of a tainted run need no approval beyond the rule

	Limits    Limits    `json:"limits,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Kind implements schemas.Event.
func (Created) Kind() string { return "grant.created" }

// Verdict says whether a grant allows or denies. A denial wins over every allowance, whatever their order.
type Verdict string

// The verdicts. Empty is Allow.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
)

// Selector picks calls. What is empty picks all, but for Repos.
type Selector struct {
	Tool    string              `json:"tool"`              // a glob over connection.tool, where '*' stands for any run of characters but '.'
	Methods []string            `json:"methods,omitempty"` // for tools that take one: the values of the argument method
	Effects []connection.Effect `json:"effects,omitempty"`
	URIs    []string            `json:"uris,omitempty"`  // for what takes one, such as resources/read: globs, where '*' stands for any run of characters but '/'
	Repos   []string            `json:"repos,omitempty"` // "owner/name" globs; a GitHub tool touches no other, so none when empty
}

// Approval is the rule by which calls under a grant wait for a person.
type Approval string

// The approval rules.
const (
	Never       Approval = "never"
	Always      Approval = "always"
	FirstPerRun Approval = "first_per_run"
	When        Approval = "when" // when ApproveWhen holds, or cannot be told
)

// Limits bound the calls under a grant. Zero is no limit.
type Limits struct {
	Calls     int `json:"calls,omitempty"`      // over the grant's whole life
	PerRun    int `json:"per_run,omitempty"`    // in one run
	PerMinute int `json:"per_minute,omitempty"` // in any minute of the clock
	AtOnce    int `json:"at_once,omitempty"`    // admitted and without their outcome; at most MaxAtOnce
}

// MaxAtOnce is the highest limit of calls at once: each of them is looked up when there seem to be as many.
const MaxAtOnce = 256

// Revoked ends a grant. From the moment it is acknowledged, no call starts under it.
type Revoked struct {
	Grant  id.Grant `json:"grant"`
	Agent  id.Agent `json:"agent"`
	Reason string   `json:"reason,omitempty"`
}

// Kind implements schemas.Event.
func (Revoked) Kind() string { return "grant.revoked" }
