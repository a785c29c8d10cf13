package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) scriptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "script",
		Short:   "Run scripts as an agent, and see what they can do",
		GroupID: groupConfig,
	}
	cmd.AddCommand(a.scriptRunCommand(), a.scriptTypesCommand())
	return cmd
}

func (a *app) scriptTypesCommand() *cobra.Command {
	var agent string
	var model bool
	cmd := &cobra.Command{
		Use:   "types --agent AGENT",
		Short: "Print the tools that an agent's scripts may call, as TypeScript",
		Args:  cobra.NoArgs,
		Long: exits(`Prints declarations of exactly the tools that the agent's grants let its scripts call, outside of any run, and of
tools.search, tools.describe and artifacts. An editor that has them beside a script completes
tools.<connection>.<tool>(...) and checks the arguments.

With --model they are as the agent's model is given them with the tool runtime.run_javascript, in 24 KiB at most: what
has no room there is declared without comments, then by name only, then counted.`, map[int]string{4: "there is no such agent"}),
		Example: "  execwarden script types --agent triage > tools.d.ts\n  execwarden script types --agent triage --model\n  execwarden script types --agent triage -o json | jq '{tools, bare, left}'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c, done, err := a.asking(cmd.Context(), "asking for the types", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			types, err := c.Types(ctx, agent, model)
			if err != nil {
				return err
			}
			if !types.Runtime {
				a.note("warning: the runtime of agent %s is off: it runs no script", agent)
			}
			switch {
			case types.Tools == 0:
				a.note("the scripts of agent %s may call no tool", agent)
			case types.Bare+types.Left > 0:
				a.note("of %d tools, %d are declared by name only and %d are left out, for want of room", types.Tools, types.Bare, types.Left)
			}
			return a.printer().One(types, func(w io.Writer) {
				_, _ = io.WriteString(w, render.Visible(types.Types)) // the printer finds what could not be written
			})
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the agent's name")
	cmd.Flags().BoolVar(&model, "model", false, "as the agent's model is given them")
	_ = cmd.MarkFlagRequired("agent") // it fails for a flag that is not there only
	return cmd
}
