package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

func (a *app) approvalsEditCommand() *cobra.Command {
	var e edit
	cmd := &cobra.Command{
		Use:   "edit APPROVAL --args FILE",
		Short: "Put other arguments in the place of those that wait",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Shows what would change, asks, and puts the arguments in FILE, whole, in the place of those that wait; - reads
standard input. The call still waits: somebody has to approve it, and under a grant with four_eyes somebody else. Votes
so far are void. What the agent's grants would refuse is refused at once. The agent is told of the edit.`, map[int]string{
			1: "it was decided, expired or edited already, the arguments would be refused, or the answer was no", 4: "there is no such approval",
		}),
		Example: "  execwarden approvals show apr_0197f0c2... -o json | jq .body.args > args.json\n  execwarden approvals edit apr_0197f0c2... --args args.json --note 'no @mention'\n  jq '.title=\"x\"' args.json | execwarden approvals edit apr_0197f0c2... --args - --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := approvalID(args[0])
			if err != nil {
				return err
			}
			return a.edit(cmd.Context(), which, e)
		},
	}
	cmd.Flags().StringVar(&e.file, "args", "", "file with the arguments, a JSON object; - is standard input (required)")
	cmd.Flags().StringVar(&e.note, "note", "", "a note, for whoever reads the ledger")
	cmd.Flags().StringVar(&e.digest, "digest", "", "edit only if this is what waits")
	cmd.Flags().BoolVarP(&e.yes, "yes", "y", false, "do not ask")
	return cmd
}

type edit struct {
	file, note, digest string
	yes                bool
}

func (a *app) edit(ctx context.Context, which id.Approval, e edit) error {
	args, err := a.arguments(e.file)
	if err != nil {
		return err
	}
	c, v, err := a.waiting(ctx, which, e.digest)
	if err != nil {
		return err
	}
	writeChanges(a.err, v.Body.Args, args)
	if err := a.confirm(ctx, e.yes, "Put this in the place of what waits?"); err != nil {
		return err
	}
	ctx, cancel := a.within(ctx, answersWithin) // however long the answer took
	defer cancel()
	defer a.progress("editing")()
	if v, err = c.EditApproval(ctx, which, v.Digest, args, e.note); err != nil {
		return err
	}
	return a.printer().One(v, func(w io.Writer) { fmt.Fprintf(w, "%s: waits, with digest %s\n", v.Approval, v.Digest) })
}

// arguments reads a call's arguments from a file, or from standard input.
func (a *app) arguments(file string) (json.RawMessage, error) {
	if file == "" {
		return nil, usage("--args says which file has the arguments")
	}
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, problem.New(problem.Invalid, "%v", err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, permit.MaxArgs+1))
	if err != nil {
		return nil, problem.New(problem.Invalid, "%s cannot be read: %v", file, err)
	}
	args, err := permit.CanonicalArgs(raw)
	if err != nil {
		return nil, problem.Wrap(err, problem.CodeOf(err), "%s: %s", file, problem.DetailOf(err).Message)
	}
	return args, nil
}
