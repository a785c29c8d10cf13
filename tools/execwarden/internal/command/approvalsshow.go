package command

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/argdiff"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) approvalsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show APPROVAL",
		Short: "Show what an approval is for",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Shows what an approval is for: the agent, the tool, and its whole arguments, which the digest binds. Characters
that would hide or reorder text are spelt out. When somebody edited the arguments, what changed is shown too.`, map[int]string{4: "there is no such approval"}),
		Example: "  execwarden approvals show apr_0197f0c2...",
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := approvalID(args[0])
			if err != nil {
				return err
			}
			ctx, c, done, err := a.asking(cmd.Context(), "asking for approvals", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			v, err := c.Approval(ctx, which)
			if err != nil {
				return err
			}
			return a.printer().One(v, func(w io.Writer) { writeApproval(w, v) })
		},
	}
}

func approvalID(text string) (id.Approval, error) {
	which, err := id.Parse[id.Approval](text)
	if err != nil {
		return "", usage("%v; execwarden approvals lists them", err)
	}
	return which, nil
}

// writeApproval shows everything that a decision is about.
func writeApproval(w io.Writer, v ask.Approval) {
	for _, line := range []struct{ name, text string }{
		{"approval", string(v.Approval)},
		{"state", v.State},
		{"by", v.By},
		{"agent", id.Name(v.Agent)},
		{"tool", v.Tool},
		{"repo", repoOf(v)},
		{"grant", id.Name(v.Grant)},
		{"run", string(v.Run)},
		{"started by", string(v.StartedBy)},
		{"edited by", members(v.Editors)},
		{"votes", votes(v)},
		{"reason", v.Reason},
		{"escalated", map[bool]string{true: "yes, more people were told"}[v.Escalated]},
		{"expires", render.Stamp(v.ExpiresAt)},
		{"digest", v.Digest},
	} {
		if line.text != "" {
			fmt.Fprintf(w, "%-12s%s\n", line.name+":", render.Inline(line.text))
		}
	}
	if v.FourEyes {
		fmt.Fprintln(w, "four eyes:  who asked for it may not approve it")
	}
	if len(v.Asked) > 0 {
		writeChanges(w, v.Asked, v.Body.Args)
	}
	fmt.Fprintf(w, "arguments:\n%s\n", render.PrettyJSON(v.Body.Args))
	if len(v.Body.Input) > 0 {
		fmt.Fprintf(w, "answers to its server:\n%s\n", render.PrettyJSON(v.Body.Input))
	}
}

// writeChanges shows what edits changed, argument by argument.
func writeChanges(w io.Writer, from, to json.RawMessage) {
	fmt.Fprintln(w, "changes:")
	for _, c := range argdiff.Changes(from, to) {
		fmt.Fprintf(w, "  %s:\n", render.Inline(c.Name))
		for _, l := range c.Lines {
			fmt.Fprintf(w, "  %c %s\n", l.Op, render.Inline(l.Text))
		}
	}
}

func members(list []id.Member) string {
	var names []string
	for _, m := range list {
		names = append(names, string(m))
	}
	return strings.Join(names, ", ")
}

func votes(v ask.Approval) string {
	if v.Quorum < 2 || v.State != approvalWaiting {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%d of %d: %s", len(v.Votes), v.Quorum, members(v.Votes)), ": ")
}

// repoOf is the repository that a call's arguments name, as GitHub's tools do. It is a convenience: what is decided
// on is the arguments.
func repoOf(v ask.Approval) string {
	var args struct{ Owner, Repo string }
	if err := json.Unmarshal(v.Body.Args, &args); err != nil || args.Owner == "" || args.Repo == "" {
		return ""
	}
	return args.Owner + "/" + args.Repo
}
