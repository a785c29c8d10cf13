package command

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) grantsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "grants",
		Short:   "List grants, or revoke one",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long:    exits("Lists grants: which agent may call which tools, and whether a person is asked. Those that were revoked are listed too.", nil),
		Example: "  execwarden grants\n  execwarden grants revoke triage-comments --reason 'it answers spam'",
		RunE:    listing(a, "grants", (*client.Client).Grants, grantGrid),
	}
	cmd.AddCommand(a.grantsRevokeCommand(), a.grantsSimulateCommand())
	return cmd
}

func grantGrid(list []client.Grant) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "GRANT"}, {Name: "AGENT"}, {Name: "TOOL"}, {Name: "REPOS"}, {Name: "APPROVAL"}, {Name: "STATE"}, {Name: "EXPIRES"}, {Name: "TAINTED", Wide: true}, {Name: "RUN", Wide: true}, {Name: "REASON", Wide: true}}}
	tones := map[client.GrantState]render.Tone{client.Active: render.Good, client.Revoked: render.Bad, client.Expired: render.Faint}
	for _, v := range list {
		g.Row(render.Text(id.Name(v.Created.Grant)), render.Text(id.Name(v.Agent)), render.Text(v.Selector.Tool), render.Text(strings.Join(v.Selector.Repos, ",")),
			render.Text(string(v.Approval)), render.Cell{Text: string(v.State), Tone: tones[v.State]}, render.Text(render.Stamp(v.ExpiresAt)),
			render.Text(strconv.FormatBool(v.Tainted)), render.Text(string(v.Run)), render.Text(v.Reason))
	}
	return g
}
