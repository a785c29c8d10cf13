package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

// decideCommand is `approvals approve` or `approvals deny`.
func (a *app) decideCommand(approve bool) *cobra.Command {
	d := decision{approve: approve}
	cmd := &cobra.Command{
		Use:   d.word() + " APPROVAL",
		Short: map[bool]string{true: "Let a call happen that waits", false: "Refuse a call that waits"}[approve],
		Args:  cobra.ExactArgs(1),
		Long: exits(`Shows what waits, asks, and decides. The decision is bound to the digest of what was shown: if something else waits
by then, nothing is decided. For scripts, --yes does not ask; --digest says what was looked at before.`, map[int]string{
			1: "it was decided or expired already, is about something else than was shown, or the answer was no", 4: "there is no such approval",
		}),
		Example: fmt.Sprintf("  execwarden approvals %s apr_0197f0c2... --note 'as discussed'\n  execwarden approvals %s apr_0197f0c2... --yes --digest sha256:...", d.word(), d.word()),
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := approvalID(args[0])
			if err != nil {
				return err
			}
			return a.decide(cmd.Context(), which, d)
		},
	}
	cmd.Flags().StringVar(&d.note, "note", "", "a note, for whoever reads the ledger")
	cmd.Flags().StringVar(&d.digest, "digest", "", "decide only if this is what waits")
	cmd.Flags().BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	if approve {
		cmd.Flags().BoolVar(&d.forRun, "for-run", false, "let later calls of the run through too, of the same tool, method and repository, under the same grant; for members who may make grants")
		cmd.Example += "\n  execwarden approvals approve apr_0197f0c2... --for-run"
	}
	return cmd
}

type decision struct {
	approve      bool
	note, digest string
	yes, forRun  bool
}

func (d decision) word() string { return map[bool]string{true: "approve", false: "deny"}[d.approve] }

func (d decision) question() string {
	switch {
	case d.forRun:
		return "Let this happen, and calls like it for the rest of the run?"
	case d.approve:
		return "Let this happen?"
	}
	return "Refuse this?"
}

func (a *app) decide(ctx context.Context, which id.Approval, d decision) error {
	c, v, err := a.waiting(ctx, which, d.digest)
	if err != nil {
		return err
	}
	// On standard error: standard output has the decision's outcome.
	if err := a.aside().One(v, func(w io.Writer) { writeApproval(w, v) }); err != nil {
		return err
	}
	if err := a.confirm(ctx, d.yes, d.question()); err != nil {
		return err
	}
	return a.sendDecision(ctx, c, v, d)
}

// waiting gives an approval that somebody is about to decide on or to edit, and the client that asked for it. It has to
// wait still, and to be about the digest that was given, if one was.
func (a *app) waiting(ctx context.Context, which id.Approval, digest string) (*client.Client, ask.Approval, error) {
	ctx, c, done, err := a.asking(ctx, "asking for the approval", answersWithin)
	if err != nil {
		return nil, ask.Approval{}, err
	}
	defer done()
	v, err := c.Approval(ctx, which)
	switch {
	case err != nil:
		return nil, ask.Approval{}, err
	case v.State != approvalWaiting:
		return nil, ask.Approval{}, problem.New(problem.Conflict, "%s does not wait any more: %s%s", which, v.State, by(v))
	case digest != "" && digest != v.Digest:
		return nil, ask.Approval{}, problem.New(problem.Conflict, "what waits has digest %s, not the one that was given; look at it again: execwarden approvals show %s", v.Digest, which)
	}
	return c, v, nil
}

func (a *app) sendDecision(ctx context.Context, c *client.Client, shown ask.Approval, d decision) error {
	ctx, cancel := a.within(ctx, answersWithin) // however long the answer took
	defer cancel()
	defer a.progress("deciding")()
	v, err := c.Decide(ctx, shown.Approval, client.Decision{Digest: shown.Digest, Approve: d.approve, ForRun: d.forRun, Note: d.note})
	if err != nil {
		return err
	}
	return a.printer().One(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s%s\n", v.Approval, render.Inline(v.State)+map[bool]string{true: " for the rest of the run"}[v.ForRun], render.Visible(by(v)))
	})
}

func by(v ask.Approval) string {
	if v.By == "" {
		return ""
	}
	return " by " + v.By
}
