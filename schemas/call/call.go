// Package call holds the events of one tool call, from requested to its one outcome.
//
//	requested -> admitted -> finished | failed | cancelled | unknown   (late: arrived after a cancel)
//	          -> held -> admitted | refused
//	          -> refused
//
// Per call, the first decision (admitted, held, refused) and the first outcome by stream sequence count; after a
// held one, the first of admitted and refused. Later ones are recorded and never acted on.
package call

import (
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// Route names the executor of a call.
type Route string

// The executors.
const (
	Upstream Route = "upstream" // toolbroker: a provider
	Script   Route = "script"   // runtime: JavaScript
	Exec     Route = "exec"     // environments: an attached machine
)

// Requested asks for a call. Nothing happens before its admission is durable.
type Requested struct {
	Call       id.Call   `json:"call"`
	Run        id.Run    `json:"run"`
	Agent      id.Agent  `json:"agent"`
	Tool       string    `json:"tool"` // connection.tool
	ArgsDigest string    `json:"args_digest"`
	Effect     string    `json:"effect_id"` // the same for every attempt at the same effect
	Parent     id.Call   `json:"parent,omitempty"`
	NotAfter   time.Time `json:"not_after"` // the broker refuses a request that it first sees later
	Taint      []string  `json:"taint,omitempty"`
	Hint       string    `json:"hint,omitempty"`   // subject to tell when the outcome is stored
	Client     *Client   `json:"client,omitempty"` // of a call that came over MCP
	Body       Args      `json:"body"`
}

// Kind implements schemas.Event.
func (Requested) Kind() string { return "call.requested" }

// Args is the argument object of a call. Input is what an MCP client gave to what the server asked for in an earlier result:
// inputResponses and requestState (MCP 2026-07-28, multi round-trip requests).
type Args struct {
	Args  json.RawMessage `json:"args"`
	Input json.RawMessage `json:"input,omitempty"`
}

// Client is what an MCP client said of itself, as far as its server may know.
type Client struct {
	Protocol     string          `json:"protocol"`               // version of MCP
	Capabilities json.RawMessage `json:"capabilities,omitempty"` // the MCP object
	LogLevel     string          `json:"log_level,omitempty"`    // from which log lines are wanted; empty: none
}

// Lent is a connection's tool that the call of a machine's tool stands for besides, and the grant on that: for as long as
// the call runs, the broker lends the machine what the connection may do there. Both grants have to allow the call.
type Lent struct {
	Tool  string   `json:"tool"`
	Grant id.Grant `json:"grant,omitempty"` // none: no grant allows it
}

// Admitted lets an executor act, once, within the permit. When a person edited the arguments, Body has those that are
// acted on, and the permit's digest is theirs; the request keeps what the caller asked for.
type Admitted struct {
	Call      id.Call     `json:"call"`
	Run       id.Run      `json:"run"`
	Tool      string      `json:"tool"`
	Route     Route       `json:"route"`
	Grant     id.Grant    `json:"grant"`
	Approval  id.Approval `json:"approval,omitempty"`
	Requested uint64      `json:"requested_seq"` // EW_ACTIVITY sequence of the request
	Control   uint64      `json:"control_seq"`   // EW_CONTROL sequence that the decision saw
	Permit    string      `json:"permit"`
	Edited    uint64      `json:"edited_seq,omitempty"` // EW_ACTIVITY sequence of the approval.edited that the arguments are from; zero: the request's
	Lent      Lent        `json:"lent,omitzero"`
	ForRun    string      `json:"for_run,omitempty"` // what later calls of the run may be and need no new approval, as a digest; empty: this call only
	Body      Args        `json:"body,omitzero"`
}

// Kind implements schemas.Event.
func (Admitted) Kind() string { return "call.admitted" }

// Held makes a call wait for a person. Digest binds tool, arguments, tool schema and grant.
type Held struct {
	Call          id.Call     `json:"call"`
	Run           id.Run      `json:"run"`
	Agent         id.Agent    `json:"agent"`
	Tool          string      `json:"tool"`
	Grant         id.Grant    `json:"grant"`
	Lent          Lent        `json:"lent,omitzero"`
	Digest        string      `json:"digest"`
	Reason        string      `json:"reason"`
	Quorum        int         `json:"quorum,omitempty"` // as the grant says
	Approver      member.Role `json:"approver,omitempty"`
	FourEyes      bool        `json:"four_eyes,omitempty"`
	EscalateAfter int         `json:"escalate_after_s,omitempty"`
	Requested     uint64      `json:"requested_seq"`
	Control       uint64      `json:"control_seq"`
}

// Kind implements schemas.Event.
func (Held) Kind() string { return "call.held" }

// Refused is the outcome of a call that no grant allows, or no longer.
type Refused struct {
	Call     id.Call     `json:"call"`
	Run      id.Run      `json:"run"`
	Tool     string      `json:"tool"`
	Grant    id.Grant    `json:"grant,omitempty"`
	Lent     Lent        `json:"lent,omitzero"`
	Approval id.Approval `json:"approval,omitempty"`
	Code     string      `json:"code"`
	Reason   string      `json:"reason"`
	Control  uint64      `json:"control_seq"`
}

// Kind implements schemas.Event.
func (Refused) Kind() string { return "call.refused" }

// Finished is the outcome of a call that the tool answered, with an error of the tool's own or without.
type Finished struct {
	Call      id.Call  `json:"call"`
	Run       id.Run   `json:"run"`
	Tool      string   `json:"tool"`
	ToolError bool     `json:"tool_error,omitempty"`
	Recovered bool     `json:"recovered,omitempty"` // found by a probe after a crash, not by the first attempt
	Taint     []string `json:"taint,omitempty"`
	Body      Result   `json:"body"`
}

// Kind implements schemas.Event.
func (Finished) Kind() string { return "call.finished" }

// Result is what a tool answered.
type Result struct {
	Result json.RawMessage `json:"result"`
}

// Failed is the outcome of a call that had no effect and no answer.
type Failed struct {
	Call    id.Call `json:"call"`
	Run     id.Run  `json:"run"`
	Tool    string  `json:"tool"`
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Body    Fault   `json:"body,omitzero"`
}

// Kind implements schemas.Event.
func (Failed) Kind() string { return "call.failed" }

// Fault is an MCP server's own error (JSON-RPC 2.0, section 5.1), for a client that speaks that.
type Fault struct {
	Error json.RawMessage `json:"error,omitempty"`
}

// Asked says that an MCP server asked the client of a call for something, or would have and was not let.
type Asked struct {
	Call    id.Call  `json:"call"`
	Run     id.Run   `json:"run"`
	Tool    string   `json:"tool"`
	Ask     int      `json:"ask"`    // counts what one call asks, from 1
	Method  string   `json:"method"` // elicitation/create, sampling/createMessage or roots/list
	Refused string   `json:"refused,omitempty"`
	Body    Question `json:"body"`
}

// Kind implements schemas.Event.
func (Asked) Kind() string { return "call.asked" }

// Question is what was asked.
type Question struct {
	Params json.RawMessage `json:"params"`
}

// Answered is what the client of a call answered.
type Answered struct {
	Call id.Call `json:"call"`
	Run  id.Run  `json:"run"`
	Tool string  `json:"tool"`
	Ask  int     `json:"ask"`
	Code string  `json:"code,omitempty"` // why there is no answer
	Body Reply   `json:"body"`
}

// Kind implements schemas.Event.
func (Answered) Kind() string { return "call.answered" }

// Reply is an answer.
type Reply struct {
	Result json.RawMessage `json:"result,omitempty"`
}

// Cancelled is the outcome of a call that was stopped before it had an effect.
type Cancelled struct {
	Call   id.Call `json:"call"`
	Run    id.Run  `json:"run"`
	Tool   string  `json:"tool"`
	Reason string  `json:"reason"`
}

// Kind implements schemas.Event.
func (Cancelled) Kind() string { return "call.cancelled" }

// Unknown is the outcome of a call that may or may not have had its effect, and that cannot be looked up.
type Unknown struct {
	Call    id.Call `json:"call"`
	Run     id.Run  `json:"run"`
	Tool    string  `json:"tool"`
	Message string  `json:"message"`
}

// Kind implements schemas.Event.
func (Unknown) Kind() string { return "call.unknown" }

// Late is an answer that arrived after the call had another outcome. It is kept for auditors and never shown to a
// model.
type Late struct {
	Call id.Call `json:"call"`
	Run  id.Run  `json:"run"`
	Tool string  `json:"tool"`
	Body Result  `json:"body"`
}

// Kind implements schemas.Event.
func (Late) Kind() string { return "call.late" }
