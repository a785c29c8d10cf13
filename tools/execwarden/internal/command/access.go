package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) accessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "access",
		Short:   "Say what an agent could do, before anything runs",
		GroupID: groupConfig,
	}
	cmd.AddCommand(a.accessShowCommand())
	return cmd
}

func (a *app) accessShowCommand() *cobra.Command {
	var agent string
	cmd := &cobra.Command{
		Use:   "show --agent AGENT",
		Short: "Show an agent's access plan: each tool, and what would become of calls to it",
		Args:  cobra.NoArgs,
		Long: exits(`Shows what an agent could do before anything runs: where its code runs, where it may fetch from, its budgets, and
each tool with what would become of a call: allowed, held for a person, denied, or depending on the call; and by which
grants.`, map[int]string{4: "there is no such agent"}),
		Example: "  execwarden access show --agent triage",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "asking for the access plan", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			plan, err := c.Access(ctx, agent)
			if err != nil {
				return err
			}
			return a.printer().One(plan, func(w io.Writer) { writeAccess(w, plan) })
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the agent's name")
	_ = cmd.MarkFlagRequired("agent") // it fails for a flag that is not there only
	return cmd
}

func writeAccess(w io.Writer, plan ask.Access) {
	a := plan.Agent
	fmt.Fprintf(w, "agent:    %s, %s\nmodel:    %s %s\n", id.Name(a.Agent), a.Hosting, a.Model.Protocol, render.Visible(a.Model.Name))
	switch {
	case !a.Runtime.Enabled:
		fmt.Fprintln(w, "runtime:  off")
	case len(a.Runtime.Egress) == 0:
		fmt.Fprintln(w, "runtime:  JavaScript in the sandbox, without fetch")
	default:
		var hosts []string
		for _, e := range a.Runtime.Egress {
			hosts = append(hosts, e.Hosts...)
		}
		fmt.Fprintf(w, "runtime:  JavaScript in the sandbox, with fetch from %s\n", render.Visible(strings.Join(hosts, ", ")))
	}
	fmt.Fprintln(w, "machine:  none attached")
	fmt.Fprintf(w, "budgets:  %s\n\n", budgets(plan))
	for _, t := range plan.Tools {
		fmt.Fprintf(w, "%-8s %s  (%s)\n", t.Word, render.Visible(t.Tool), render.Visible(t.Why))
		for _, r := range t.Rules {
			fmt.Fprintf(w, "         %s %s\n", id.Name(r.Grant), render.Visible(r.Text))
		}
	}
}

func budgets(plan ask.Access) string {
	b := plan.Agent.Budgets
	text := func(n int) string {
		if n == 0 {
			return "default"
		}
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("steps %s, calls %s, tokens %s", text(b.Steps), text(b.Calls), text(b.Tokens))
}
