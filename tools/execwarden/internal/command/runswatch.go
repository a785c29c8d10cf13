package command

import (
	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/tools/execwarden/internal/runstate"
)

func (a *app) runsWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch RUN",
		Short: "Follow a run to its end",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Shows what happened in a run, and what happens, until it ends. It is streamed, not asked for again and again. What
tools say while they work (progress, log lines) is told on standard error, and recorded nowhere. What ends the command
does not end the run.`, map[int]string{0: "the run completed", 1: "the run failed or was cancelled; or the API cannot be reached", 4: "there is no such run", 6: "--timeout passed; the run goes on"}),
		Example: "  execwarden runs watch run_0197f0c2...\n  execwarden runs watch run_0197f0c2... -o jsonl | jq -r .kind",
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := runID(args[0])
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			ctx, cancel := a.within(cmd.Context(), 0)
			defer cancel()
			w := &watch{app: a, run: runstate.New(which), lines: a.printer()}
			at, err := timeline(ctx, c, which, w.past)
			if err == nil && !w.run.Over() {
				w.hint()
				err = w.follow(ctx, c, at)
			}
			if err != nil {
				return err
			}
			if w.run.State == runstate.Completed {
				a.note("%s completed", which)
			}
			return a.verdict(w.run)
		},
	}
}
