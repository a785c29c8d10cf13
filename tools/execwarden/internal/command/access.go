package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	agents "github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
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
	var agent, env, task string
	cmd := &cobra.Command{
		Use:   "show --agent AGENT [--env ENVIRONMENT] [--task FILE]",
		Short: "Show an agent's access plan: each tool, and what would become of calls to it",
		Args:  cobra.NoArgs,
		Long: exits(`Shows what an agent could do before anything runs: where its code runs, where it may fetch from, its budgets, and
each tool with what would become of a call: allowed, held for a person, denied, or depending on the call; and by which
grants. With --env, which machine it would have. With --task, what would become of each call of a task, a YAML or JSON
file such as

  calls:
    - tool: github.add_issue_comment
      args: {owner: acme, repo: shop, issue_number: 7, body: On it}
      tainted: true   # by then the run has read content that nobody vouches for

Limits are not looked at: they depend on what was let through by then.`, map[int]string{4: "there is no such agent or environment"}),
		Example: "  execwarden access show --agent triage\n  execwarden access show --agent triage --env builder --task task.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			calls, err := readTask(task)
			if err != nil {
				return err
			}
			ctx, c, done, err := a.asking(cmd.Context(), "asking for the access plan", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			plan, err := c.Access(ctx, agent, env, calls)
			if err != nil {
				return err
			}
			return a.printer().One(plan, func(w io.Writer) { writeAccess(w, plan) })
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the agent's name")
	cmd.Flags().StringVar(&env, "env", "", "the environment that a run would have")
	cmd.Flags().StringVar(&task, "task", "", "file with the calls of a task; - is standard input")
	_ = cmd.MarkFlagRequired("agent") // it fails for a flag that is not there only
	return cmd
}

func writeAccess(w io.Writer, plan client.Access) {
	a := plan.Agent
	fmt.Fprintf(w, "agent:    %s, %s\n", id.Name(a.Agent), a.Hosting)
	if a.Hosting == agents.Hosted {
		fmt.Fprintf(w, "model:    %s %s\n", a.Model.Protocol, render.Visible(a.Model.Name))
	}
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
	switch {
	case a.Hosting == agents.External:
		fmt.Fprintln(w, "machine:  the client's own")
	case plan.Environment == nil:
		fmt.Fprintln(w, "machine:  none attached")
	default:
		fmt.Fprintf(w, "machine:  %s (%s): registered; what it exposes, its own policy says, and until it is connected every command on it is unavailable\n",
			id.Name(plan.Environment.Environment), plan.Environment.Driver)
	}
	fmt.Fprintf(w, "budgets:  %s\n\n", budgets(plan))
	for _, t := range plan.Tools {
		fmt.Fprintf(w, "%-8s %s  (%s)\n", t.Word, render.Visible(t.Tool), render.Visible(t.Why))
		for _, r := range t.Rules {
			fmt.Fprintf(w, "         %s %s\n", id.Name(r.Grant), render.Visible(r.Text))
		}
	}
	if len(plan.Calls) > 0 {
		fmt.Fprintln(w, "\nthe task's calls:")
	}
	for n, c := range plan.Calls {
		by := ""
		if c.Decision.Grant != "" {
			by = ", by " + id.Name(c.Decision.Grant)
		}
		fmt.Fprintf(w, "%3d  %-8s %s %s\n              %s%s\n", n+1, c.Decision.Word, render.Visible(c.Tool), render.Visible(render.Short(string(c.Args), 100)), render.Visible(c.Decision.Reason), by)
	}
}

func budgets(plan client.Access) string {
	b := plan.Agent.Budgets
	text := func(n int) string {
		if n == 0 {
			return "default"
		}
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("steps %s, calls %s, tokens %s", text(b.Steps), text(b.Calls), text(b.Tokens))
}
