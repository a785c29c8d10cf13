package files

import (
	"context"
	"encoding/json"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
)

// Call carries out a file tool. Problems: invalid, denied, not_found, conflict (stale), too_large, unavailable.
func (t *Tree) Call(ctx context.Context, tool string, args json.RawMessage) (any, error) {
	switch tool {
	case "read_file":
		return call(args, t.read)
	case "write_file":
		return call(args, t.write)
	case "edit_file":
		return call(args, t.edit)
	case "apply_patch":
		return call(args, t.patch)
	case "list":
		return call(args, func(a machine.ListArgs) (any, error) { return t.list(ctx, a) })
	case "glob":
		return call(args, func(a machine.GlobArgs) (any, error) { return t.glob(ctx, a) })
	case "grep":
		return call(args, func(a machine.GrepArgs) (any, error) { return t.grep(ctx, a) })
	}
	return nil, problem.New(problem.NotFound, "this machine has no tool %.60q", tool)
}

// call reads a tool's arguments, which a model made.
func call[A any](raw json.RawMessage, f func(A) (any, error)) (any, error) {
	a, err := machine.Args[A](raw)
	if err != nil {
		return nil, problem.New(problem.Invalid, "%v", err)
	}
	return f(a)
}
