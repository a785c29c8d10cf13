package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) approvalsCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:     "approvals",
		Short:   "List what waits for a person; show it, edit it and decide",
		GroupID: groupWork,
		Args:    cobra.NoArgs,
		Long: exits(`Lists the calls that wait for a person to decide, the newest first; with --all, those that were decided or expired
too.`, nil),
		Example: "  execwarden approvals\n  execwarden approvals show apr_0197f0c2...\n  execwarden approvals approve apr_0197f0c2... --note 'looks right'",
		RunE: listing(a, "approvals", func(c *client.Client, ctx context.Context) ([]ask.Approval, error) {
			return c.Approvals(ctx, !all)
		}, approvalGrid),
	}
	cmd.Flags().BoolVar(&all, "all", false, "list those that do not wait any more, too")
	cmd.AddCommand(a.approvalsShowCommand(), a.approvalsEditCommand(), a.decideCommand(true), a.decideCommand(false))
	return cmd
}

// The states of an approval, as the API names them.
const (
	approvalWaiting  = "waiting"
	approvalApproved = "approved"
	approvalDenied   = "denied"
	approvalExpired  = "expired"
)

var approvalTones = map[string]render.Tone{
	approvalWaiting: render.Waits, approvalApproved: render.Good, approvalDenied: render.Bad, approvalExpired: render.Faint,
}

func approvalGrid(list []ask.Approval) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "APPROVAL"}, {Name: "AGENT"}, {Name: "TOOL"}, {Name: "REPO"}, {Name: "STATE"}, {Name: "EXPIRES"}, {Name: "REASON"}, {Name: "RUN", Wide: true}, {Name: "GRANT", Wide: true}, {Name: "BY", Wide: true}, {Name: "DIGEST", Wide: true}}}
	for _, v := range list {
		g.Row(render.Text(string(v.Approval)), render.Text(id.Name(v.Agent)), render.Text(v.Tool), render.Text(repoOf(v)),
			render.Cell{Text: v.State, Tone: approvalTones[v.State]}, render.Text(render.Stamp(v.ExpiresAt)), render.Text(v.Reason),
			render.Text(string(v.Run)), render.Text(id.Name(v.Grant)), render.Text(v.By), render.Text(v.Digest))
	}
	return g
}
