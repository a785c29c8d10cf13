package command

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) triggersCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "triggers",
		Short:   "List triggers",
		GroupID: groupConfig,
		Args:    cobra.NoArgs,
		Long:    exits("Lists triggers: the rules by which webhook deliveries start runs.", nil),
		Example: "  execwarden triggers -o wide",
		RunE:    listing(a, "triggers", (*client.Client).Triggers, triggerGrid),
	}
}

func triggerGrid(list []trigger.Defined) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "TRIGGER"}, {Name: "HOOK"}, {Name: "EVENTS"}, {Name: "REPOS"}, {Name: "AGENT"}, {Name: "PROMPT", Wide: true}}}
	for _, t := range list {
		g.Row(render.Text(id.Name(t.Trigger)), render.Text(id.Name(t.Hook)), render.Text(strings.Join(t.Events, ",")),
			render.Text(strings.Join(t.Repos, ",")), render.Text(id.Name(t.Agent)), render.Text(render.Short(t.Prompt, 80)))
	}
	return g
}
