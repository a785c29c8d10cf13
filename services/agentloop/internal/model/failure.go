package model

import (
	"context"
	"errors"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Failure is why there is no answer. Its codes:
//
//	invalid      the request breaks a rule of the protocol; nothing was sent
//	busy         the provider limits the rate
//	unavailable  it is overloaded, or cannot be reached
//	upstream     it answered with an error, or with what is no answer
//	too_large    the conversation, or the answer, is over a limit
//	timeout      the deadline passed, or the stream fell silent
//	cancelled    the caller gave up
type Failure struct {
	Problem    *problem.Error
	Retryable  bool          // the same request may succeed later
	RetryAfter time.Duration // how long the provider asked to wait; 0: it did not say
}

func (f *Failure) Error() string { return f.Problem.Error() }
func (f *Failure) Unwrap() error { return f.Problem }

func final(code problem.Code, format string, args ...any) *Failure {
	return &Failure{Problem: problem.New(code, format, args...)}
}

// broken is a provider that does not keep to its protocol. Asking again often helps: most are proxies between us and
// it, or sampling accidents.
func broken(format string, args ...any) *Failure {
	return &Failure{Problem: problem.New(problem.Upstream, format, args...), Retryable: true}
}

// errSilent is the cause with which silence ends a request.
var errSilent = errors.New("no byte within the silence limit")

// interrupted explains an error of the connection. What our own context says comes first: it is why the rest failed.
func interrupted(ctx context.Context, err error, format string, args ...any) *Failure {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSilent):
		return &Failure{Problem: problem.Wrap(err, problem.Timeout, "the model provider fell silent"), Retryable: true}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Failure{Problem: problem.Wrap(ctx.Err(), problem.Timeout, "the deadline for the model's answer passed")}
	case ctx.Err() != nil:
		return &Failure{Problem: problem.Wrap(ctx.Err(), problem.Cancelled, "the request to the model was cancelled")}
	}
	return &Failure{Problem: problem.Wrap(err, problem.Unavailable, format, args...), Retryable: true}
}
