// Package upstream makes calls to providers. Each provider turns its own errors into the one vocabulary, and says of
// an error whether the call may have had its effect.
package upstream

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// MaxResult is the largest tool result that is kept, in bytes. A larger one is an error that says so.
const MaxResult = 1 << 20

// Call is one admitted call.
type Call struct {
	Call   id.Call
	Tool   string // the connection's own name of it
	Args   json.RawMessage
	Schema json.RawMessage // of the arguments, as it was decided by; empty: none is known
	Effect string          // idempotency key: the same for every attempt at this effect
	News   func(News)      // takes what the call says while it runs; must not block; nil: nobody does
	Client *Client         // of a call that came over MCP; nil: none
}

// Client is the MCP client that a call came from. What it is passed is passed as it came.
type Client struct {
	call.Client
	Conversation id.Run
	Input        json.RawMessage                             // inputResponses and requestState of its request
	Say          func(method string, params json.RawMessage) // passes a notification on; must not block
	Ask          func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

// Modern says that the client speaks the protocol without sessions, in which a server asks by its result.
func (c *Client) Modern() bool { return c.Protocol >= "2026-07-28" }

// Lister is a provider that lists more than tools: by the methods of MCP, for a client.
type Lister interface {
	List(ctx context.Context, method string, c *Client) (json.RawMessage, error)
}

// fault is an MCP server's own error.
type fault struct {
	error
	raw json.RawMessage
}

func (f fault) Unwrap() error { return f.error }

// WithFault keeps a server's own error with ours.
func WithFault(err error, raw json.RawMessage) error { return fault{err, raw} }

// FaultOf is what WithFault kept, nil when there is none.
func FaultOf(err error) json.RawMessage {
	var f fault
	if errors.As(err, &f) {
		return f.raw
	}
	return nil
}

// News is what a call says while it runs: progress, or with a level a log line.
type News struct {
	Progress, Total float64
	Level, Message  string
}

// Result is what a tool answered.
type Result struct {
	Content   json.RawMessage
	ToolError bool // the tool says that it failed
}

// Provider is one connection.
type Provider interface {
	// Tools lists what the connection offers now.
	Tools(ctx context.Context) ([]connection.Tool, error)
	// Call makes the call. An error that Ambiguous says true of may have had its effect.
	Call(ctx context.Context, c Call) (Result, error)
	// Probe looks for the effect of an earlier attempt at a probeable call.
	Probe(ctx context.Context, c Call) (r Result, found bool, err error)
	// Close lets go of what the provider holds.
	Close() error
}

// Renouncer is a provider that has credentials made for its calls. Renounce gives up those that there are; a call that
// needs one gets another.
type Renouncer interface{ Renounce() }

// ambiguous marks an error after which the effect may have happened.
type ambiguous struct{ error }

func (a ambiguous) Unwrap() error { return a.error }

// Ambiguously marks err.
func Ambiguously(err error) error { return ambiguous{err} }

// Ambiguous says whether the call that ended in err may have had its effect.
func Ambiguous(err error) bool {
	var a ambiguous
	return errors.As(err, &a)
}

// harmless marks an error of a request that the provider did not act on, although it may have been sent.
type harmless struct{ error }

func (h harmless) Unwrap() error { return h.error }

// Harmlessly marks the error of a way out, for whoever watches the request.
func Harmlessly(err error) error { return harmless{err} }
