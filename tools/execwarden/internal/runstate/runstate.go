// Package runstate folds the events of one run into what became of it, as far as they go.
package runstate

import (
	"slices"
	"time"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// State is a run's state, in the words of the API's list of runs.
type State string

// The states.
const (
	Running   State = "running"
	Waiting   State = "waiting_approval"
	Completed State = "completed"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Run is a run as far as its events go.
type Run struct {
	Run     id.Run        `json:"run"`
	Agent   id.Agent      `json:"agent,omitempty"`
	State   State         `json:"state"`
	Trigger id.Trigger    `json:"trigger,omitempty"`
	Prompt  string        `json:"prompt,omitempty"`
	Created time.Time     `json:"created,omitzero"`
	Ended   time.Time     `json:"ended,omitzero"`
	Steps   int           `json:"steps"`
	Calls   int           `json:"calls"`
	Tokens  int           `json:"tokens"`
	Result  string        `json:"result,omitempty"`
	Code    string        `json:"code,omitempty"`    // of a failure
	Message string        `json:"message,omitempty"` // why there is no result
	Apart   string        `json:"result_blob,omitempty"`
	Waits   []id.Approval `json:"waits,omitempty"` // approvals that somebody has to decide on
}

// New is a run of which nothing is known yet.
func New(which id.Run) *Run { return &Run{Run: which, State: Running} }

// Over says whether the run has ended.
func (r *Run) Over() bool { return r.State == Completed || r.State == Failed || r.State == Cancelled }

// Apply takes the run's next event. What it cannot read, or what came after the end, changes nothing.
func (r *Run) Apply(e client.Event) {
	envelope, err := e.Envelope()
	if err != nil || envelope.Run != r.Run || r.Over() {
		return
	}
	ev, err := envelope.Decode()
	if err != nil {
		return
	}
	switch ev := ev.(type) {
	case run.Completed:
		r.Steps, r.Calls, r.Tokens = ev.Steps, ev.Calls, ev.Tokens
		r.Result, r.Apart = ev.Body.Text, envelope.BodyBlob
		r.end(Completed, envelope.Time)
	case run.Failed:
		r.Code, r.Message = ev.Code, ev.Message
		r.end(Failed, envelope.Time)
	case run.Cancelled:
		r.Message = ev.Reason
		r.end(Cancelled, envelope.Time)
	default:
		r.goOn(envelope, ev)
	}
}

func (r *Run) end(s State, at time.Time) { r.State, r.Ended, r.Waits = s, at, nil }

func (r *Run) goOn(envelope schemas.Envelope, ev schemas.Event) {
	switch ev := ev.(type) {
	case run.Created:
		r.Agent, r.Trigger, r.Prompt, r.Created = ev.Agent.Agent, ev.Trigger, ev.Body.Text, envelope.Time
	case run.ModelCompleted:
		r.Steps, r.Tokens = max(r.Steps, ev.Step), r.Tokens+ev.InputTokens+ev.OutputTokens
	case call.Requested:
		r.Calls++
	case approval.Requested:
		r.Waits = append(r.Waits, ev.Approval)
	case approval.Decided:
		r.decided(ev.Approval)
	case approval.Expired:
		r.decided(ev.Approval)
	}
	r.State = Running
	if len(r.Waits) > 0 {
		r.State = Waiting
	}
}

func (r *Run) decided(which id.Approval) {
	r.Waits = slices.DeleteFunc(r.Waits, func(a id.Approval) bool { return a == which })
}
