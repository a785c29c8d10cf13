package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// Limits bound one script; its comments hold the defaults.
type Limits = wire.Limits

// Script is what runs. The same Script with the same answers from its Host gives the same Result.
type Script struct {
	// Source is JavaScript or TypeScript: a function body with return and await, an expression, or a function.
	Source string
	// Input is JSON that the script finds, frozen, as its global input; without it that is undefined.
	Input json.RawMessage
	// Seed feeds Math.random, crypto.getRandomValues and crypto.randomUUID.
	Seed uint64
	// Now is where the script's clock starts. The clock moves only as timers fire.
	Now time.Time
	// Tools are the names that may be called, as "connection.tool". A call to another throws tool_unknown.
	Tools []string
	// Fetch enables fetch. Without it fetch throws fetch_disabled.
	Fetch bool
	// Run names the run that the script is of. A later script of the same run may be given the same worker, with a VM of
	// its own. Without a name, the worker ends with the script.
	Run string
	// Limits lower the pool's. Zero fields mean the pool's own.
	Limits Limits
}

// Host answers a running script. CallTool, Fetch and SearchTools run concurrently, Artifact one at a time, in goroutines of their own; they must return
// soon after their context ends, because Run waits for them. Their errors reach the script by problem code and
// message, never by cause.
type Host interface {
	// Started hears that the script has its worker, before the worker has the script. An error ends the run, as it is.
	Started(ctx context.Context) error
	CallTool(ctx context.Context, call Call) (json.RawMessage, error)
	Fetch(ctx context.Context, request Request) (Response, error)
	// SearchTools gives JSON: a list of tools, or what there is to know of one.
	SearchTools(ctx context.Context, query Search) (json.RawMessage, error)
	Artifact(ctx context.Context, operation Artifact) (Kept, error)
	// Refused hears of a request that the worker refused by itself, before the next request is asked. An Abort ends the
	// run; it gives no other error, does not wait, and is called by one goroutine.
	Refused(seq int) error
	// Answered hears that the answer to a call or a fetch was written to the worker. The script gets answers in the
	// order in which they are written, and what it does next may depend on that order.
	Answered(seq int)
	// Log hears a console line as it comes. It is called by one goroutine and should not wait.
	Log(level, line string)
}

type (
	// Call is one tool call. Seq counts all of a script's requests together, those too that the worker refused, from 1, in
	// the order in which the script issued them, which is the same on every run.
	Call = wire.Call
	// Request is one fetch.
	Request = wire.Fetch
	// Response answers a fetch.
	Response = wire.Response
	// Field is one header line.
	Field = wire.Field
)

// Result is what a script came to.
type Result struct {
	// Value is JSON; null for a script that returns nothing.
	Value json.RawMessage
	Logs  []Line
	// Warnings are for the author: unhandled rejections, calls that were never awaited.
	Warnings []string
	Calls    int
	Fetches  int
	// Tier and Isolation are what held while it ran.
	Tier      Tier
	Isolation Report
	Stats     Stats
}

// Line is one console line.
type Line struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Stats are measurements. CPU and Heap are the worker's own word.
type Stats struct {
	Warm bool          // the worker had run a script of the same run
	Wait time.Duration // for a place and a worker
	Wall time.Duration // from the script's start to its last word
	CPU  time.Duration
	Heap int64
}

// The codes of a ScriptError. Besides these, an uncaught ToolError, FetchError or ArtifactError keeps its own code.
const (
	CodeSyntax         = "syntax_error"
	CodeUnsupported    = "unsupported_syntax"
	CodeRegexp         = "unsupported_regexp"
	CodeException      = "exception" // an error that the script threw and nobody caught
	CodeTimeout        = "timeout"
	CodeCPU            = "cpu_limit"
	CodeMemory         = "memory_limit"
	CodeStack          = "stack_overflow"
	CodeDeadlock       = "deadlock"
	CodeOutputTooLarge = "output_too_large"
	CodeToolUnknown    = "tool_unknown"
	CodeTooManyCalls   = "too_many_calls"
	CodeArgsTooLarge   = "args_too_large"
	CodeResultTooLarge = "result_too_large"
	CodeFetchDisabled  = "fetch_disabled"
	CodeFetchBlocked   = "fetch_blocked"
	CodeFetchTooLarge  = "fetch_too_large"
	CodeDivergence     = "replay_divergence" // run again over its record, the script asked for something else than then
	CodeFault          = "sandbox_fault"     // the worker broke its protocol or died without a reason that we know
)

// ScriptError is the script's own end: its author, often a model, reads it and writes a better script.
type ScriptError struct {
	Code    string
	Name    string // the JavaScript error's name, if it was one
	Message string
	Line    int // in Source; zero when unknown
	Col     int
}

func (e *ScriptError) Error() string {
	where := ""
	if e.Line > 0 {
		where = fmt.Sprintf(" at line %d, column %d", e.Line, e.Col)
	}
	if e.Name != "" {
		return fmt.Sprintf("%s: %s: %s%s", e.Code, e.Name, e.Message, where)
	}
	return fmt.Sprintf("%s: %s%s", e.Code, e.Message, where)
}

// abort is a Host's way to end the whole run.
type abort struct{ err error }

func (a *abort) Error() string { return a.err.Error() }
func (a *abort) Unwrap() error { return a.err }

// Abort makes an error with which a Host ends the run instead of failing one call, as for a call that waits for a
// person's decision. Run returns err itself.
func Abort(err error) error { return &abort{err} }

func aborted(err error) (error, bool) {
	var a *abort
	if errors.As(err, &a) {
		return a.err, true
	}
	return nil, false
}
