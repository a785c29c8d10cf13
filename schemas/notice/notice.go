// Package notice holds the events of telling approvers, one notice to one target. A notice is sent at least once, always
// under its id: of two that a crash made, the receiver can drop one.
//
//	queued -> retried ... -> sent | failed
package notice

import (
	"time"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/target"
)

// Queued is a notice that is to be sent.
type Queued struct {
	Notice   id.Notice    `json:"notice"`
	Target   id.Target    `json:"target"`
	About    target.About `json:"about"`
	Approval id.Approval  `json:"approval"`
	Run      id.Run       `json:"run"`
	Owner    string       `json:"owner"` // the life of the process that sends it
}

// Kind implements schemas.Event.
func (Queued) Kind() string { return "notice.queued" }

// Retried is an attempt that did not reach its target, and will be made again.
type Retried struct {
	Notice  id.Notice `json:"notice"`
	Target  id.Target `json:"target"`
	Attempt int       `json:"attempt"` // from 1
	Reason  string    `json:"reason"`
	NextAt  time.Time `json:"next_at"`
	Owner   string    `json:"owner"`
}

// Kind implements schemas.Event.
func (Retried) Kind() string { return "notice.retried" }

// Sent says that the target took the notice.
type Sent struct {
	Notice   id.Notice    `json:"notice"`
	Target   id.Target    `json:"target"`
	About    target.About `json:"about"`
	Approval id.Approval  `json:"approval"`
	Attempts int          `json:"attempts"`
	Owner    string       `json:"owner,omitempty"`
}

// Kind implements schemas.Event.
func (Sent) Kind() string { return "notice.sent" }

// Failed says that the notice was given up.
type Failed struct {
	Notice   id.Notice    `json:"notice"`
	Target   id.Target    `json:"target"`
	About    target.About `json:"about"`
	Approval id.Approval  `json:"approval"`
	Attempts int          `json:"attempts"`
	Reason   string       `json:"reason"`
	Owner    string       `json:"owner,omitempty"` // of the last attempt; empty: there was none
}

// Kind implements schemas.Event.
func (Failed) Kind() string { return "notice.failed" }
