package command

import (
	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) agentsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agents",
		Short:   "List agents, or remove one",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long:    exits("Lists agents: the identities that call tools.", nil),
		Example: "  execwarden agents\n  execwarden agents -o json | jq -r '.agents[].agent'",
		RunE:    listing(a, "agents", (*client.Client).Agents, agentGrid),
	}
	cmd.AddCommand(a.removing("an agent", `Removes an agent. It returns when that is in force: from then on none of its calls starts, and those in flight were told
to stop.`, "  execwarden agents remove triage", (*client.Client).RemoveAgent))
	return cmd
}

func agentGrid(list []agent.Defined) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "AGENT"}, {Name: "HOSTING"}, {Name: "MODEL"}, {Name: "JAVASCRIPT"}, {Name: "PROTOCOL", Wide: true}, {Name: "URL", Wide: true}, {Name: "INSTRUCTIONS", Wide: true}}}
	for _, a := range list {
		js := "off"
		if a.Runtime.Enabled {
			js = "on"
		}
		g.Row(render.Text(id.Name(a.Agent)), render.Text(string(a.Hosting)), render.Text(a.Model.Name), render.Text(js),
			render.Text(a.Model.Protocol), render.Text(a.Model.URL), render.Text(render.Short(a.Body.Instructions, 80)))
	}
	return g
}
