package agentloop

import (
	"context"
	"errors"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/agentloop/internal/model"
)

// A dependency of ours that is away ends no run; what the model says does.
func TestWhoIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"an answer":               {nil, false},
		"a vault that is away":    {problem.New(problem.Unavailable, "the secret cannot be read now"), true},
		"a vault that is slow":    {problem.Wrap(context.DeadlineExceeded, problem.Timeout, "x"), true},
		"another master key":      {problem.New(problem.Internal, "x"), false},
		"a URL that is none":      {problem.New(problem.Invalid, "x"), false},
		"a fault":                 {errors.New("x"), false},
		"a model that is away":    {&model.Failure{Problem: problem.New(problem.Unavailable, "x"), Retryable: true}, false},
		"a model that takes long": {&model.Failure{Problem: problem.New(problem.Timeout, "x")}, false},
	} {
		if got := waits(c.err); got != c.want {
			t.Errorf("%s: waited for %v", name, got)
		}
	}
}
