// Package problem is the one error vocabulary of ExecWarden: a code that programs branch on, a message that a
// person can act on, and the cause. Every edge maps it once: HTTP (RFC 9457) and CLI exit codes here, events by
// carrying Detail.
package problem

import (
	"context"
	"errors"
	"fmt"
)

// Code is a stable word for one kind of failure. Codes are part of the public language: they are added, never
// renamed.
type Code string

const (
	Invalid          Code = "invalid"           // the input breaks a documented rule; sending it again cannot help
	TooLarge         Code = "too_large"         // the input is over its documented size limit
	Unauthenticated  Code = "unauthenticated"   // no identity, or one that is not valid (any more)
	Denied           Code = "denied"            // known caller, and no grant or role allows this
	NotFound         Code = "not_found"         // no such thing in this tenant
	Conflict         Code = "conflict"          // the state moved on; read again and decide again
	Held             Code = "awaiting_approval" // a person has to decide first
	Expired          Code = "expired"           // the time in which this was possible is over
	Cancelled        Code = "cancelled"         // stopped before it had an effect
	Unknown          Code = "unknown_outcome"   // it may or may not have had its effect; a person decides
	Timeout          Code = "timeout"           // the deadline passed
	Busy             Code = "busy"              // a limit on concurrency or rate is reached; try later
	Unavailable      Code = "unavailable"       // a dependency does not answer
	AuditUnavailable Code = "audit_unavailable" // nothing was recorded, so nothing was done
	Pending          Code = "pending"           // recorded, and its outcome is not known yet
	BudgetExhausted  Code = "budget_exhausted"  // the run's budget does not cover the next step
	Upstream         Code = "upstream_error"    // the provider answered with an error
	BusDenied        Code = "bus_denied"        // NATS permissions refused a subject: a deployment fault
	Internal         Code = "internal"          // a fault of ours
)

// Error is a failure with a code. The zero value is not useful; use New or Wrap.
type Error struct {
	Code    Code
	Message string
	Cause   error
}

// New makes an error with a message for people.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap makes an error that keeps cause for logs. The message replaces the cause's text wherever people or other
// systems read it, so that a cause can hold what they must not see.
func Wrap(cause error, code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return string(e.Code) + ": " + e.Message + ": " + e.Cause.Error()
	}
	return string(e.Code) + ": " + e.Message
}

func (e *Error) Unwrap() error { return e.Cause }

// CodeOf returns the code of the outermost Error in err's chain. Context errors have codes of their own; what has
// no code is Internal. A nil error has the empty code.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return Internal
}

// Detail is the part of an error that may leave the process: in events, RPC answers and HTTP bodies. It never
// holds the cause.
type Detail struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// DetailOf returns what of err may leave the process.
func DetailOf(err error) Detail {
	var e *Error
	if errors.As(err, &e) {
		return Detail{Code: e.Code, Message: e.Message}
	}
	code := CodeOf(err)
	switch code {
	case Timeout:
		return Detail{Code: code, Message: "the deadline passed"}
	case Cancelled:
		return Detail{Code: code, Message: "cancelled"}
	}
	return Detail{Code: code, Message: "an internal fault; the service's log has the cause"}
}

// Err turns a Detail that came from elsewhere back into an error.
func (d Detail) Err() *Error { return &Error{Code: d.Code, Message: d.Message} }
