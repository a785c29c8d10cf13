package command

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) connectionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "connections",
		Short:   "List connections and their tools, log in to them, import an API package, or remove one",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long: exits(`Lists connections: the configured providers of tools. A credential is shown by its fingerprint only; the tools'
schemas are in -o json. LOGIN is for those whose tokens come from an authorization server: one that is "needed" calls
nothing until somebody runs execwarden connections login.`, nil),
		Example: "  execwarden connections\n  execwarden connections -o json | jq -r '.connections[] | .tools[].name'",
		RunE:    listing(a, "connections", (*client.Client).Connections, connectionGrid),
	}
	cmd.AddCommand(a.connectionsImportCommand(), a.connectionsDiffCommand(), a.connectionsLoginCommand(),
		a.removing("a connection", `Removes a connection, with its credential and its tokens, which are revoked where that can be. It returns when that is in
force: from then on nothing reaches the provider over it, and calls in flight were told to stop. It does not ask.`,
			"  execwarden connections remove github", (*client.Client).RemoveConnection))
	return cmd
}

func connectionGrid(list []client.Connection) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "CONNECTION"}, {Name: "TYPE"}, {Name: "URL"}, {Name: "TOOLS"}, {Name: "LOGIN"}, {Name: "TRUSTED", Wide: true}, {Name: "CREDENTIAL", Wide: true}, {Name: "NAMES", Wide: true}}}
	for _, c := range list {
		var names []string
		for _, t := range c.Tools {
			names = append(names, t.Name)
		}
		login := "-"
		if c.Login != nil {
			login = string(c.Login.State)
		}
		g.Row(render.Text(id.Name(c.Defined.Connection)), render.Text(string(c.Type)), render.Text(c.URL), render.Text(strconv.Itoa(len(c.Tools))), render.Text(login),
			render.Text(strconv.FormatBool(c.Trusted)), render.Text(c.Credential), render.Text(strings.Join(names, ",")))
	}
	return g
}
