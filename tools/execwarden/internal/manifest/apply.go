package manifest

import (
	"context"
	"fmt"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// Apply does a plan's steps in their order, telling each that is done. It stops at the first that fails; its error
// says what was done and what was not. Applying the same files again goes on from there, since every step may be
// repeated.
func Apply(ctx context.Context, api *client.Client, plan Plan, done func(Step)) error {
	work := plan.Work()
	for i, s := range work {
		err := s.send(ctx, api)
		if err == nil {
			done(s)
			continue
		}
		return problem.Wrap(err, problem.CodeOf(err), "%s (%s): %s\ndone before it: %s\nnot done: %s\nApply the same files again when it is mended: what is done already stays as it is.",
			s.Key, s.Where, explain(err), keys(work[:i]), keys(work[i:]))
	}
	return nil
}

func keys(steps Plan) string {
	if len(steps) == 0 {
		return "nothing"
	}
	names := make([]string, 0, len(steps))
	for _, s := range steps {
		names = append(names, fmt.Sprint(s.Key))
	}
	return strings.Join(names, ", ")
}
