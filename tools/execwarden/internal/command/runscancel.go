package command

import (
	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
)

func (a *app) runsCancelCommand() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "Stop a run",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Asks a run to stop. It returns when that is recorded, and the run ends as cancelled. Calls and scripts in flight are told
to stop; how each of them ended follows in its timeline: cancelled, or unknown where a write may have happened.`, map[int]string{1: "the run has ended already; or the API cannot be reached", 4: "there is no such run"}),
		Example: "  execwarden runs cancel run_0197f0c2... --reason 'wrong repository'",
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := runID(args[0])
			if err != nil {
				return err
			}
			ctx, c, done, err := a.asking(cmd.Context(), "asking the run to stop", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			if err := c.CancelRun(ctx, which, reason); err != nil {
				return err
			}
			if p := a.printer(); !p.Format.ForPeople() {
				return p.Value(ask.CancelRun{Run: which, Reason: reason})
			}
			a.note("%s is asked to stop; see it end: execwarden runs watch %s", which, which)
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever reads the ledger")
	return cmd
}
