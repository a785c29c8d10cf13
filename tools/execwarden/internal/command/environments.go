package command

import (
	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) environmentsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "environments",
		Short:   "List environments",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long:    exits("Lists environments: the machines that are registered as places to execute.", nil),
		Example: "  execwarden environments",
		RunE:    listing(a, "environments", (*client.Client).Environments, environmentGrid),
	}
}

func environmentGrid(list []environment.Registered) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "ENVIRONMENT"}, {Name: "DRIVER"}}}
	for _, e := range list {
		g.Row(render.Text(id.Name(e.Environment)), render.Text(string(e.Driver)))
	}
	return g
}
