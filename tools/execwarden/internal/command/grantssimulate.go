package command

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/manifest"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) grantsSimulateCommand() *cobra.Command {
	var file string
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "simulate -f FILE",
		Short: "Hold a grant against what was called, before it is made",
		Args:  cobra.NoArgs,
		Long: exits(`Decides the recorded calls of the grant's agent once as things are and once as they would be with the grant, and shows
where the two differ, call by call. It changes nothing. FILE holds the one grant, as for apply. Limits are not
simulated, and neither are approvals that were given.`, nil),
		Example: "  execwarden grants simulate -f tighter.yaml --since 24h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := manifest.Load([]string{file}, a.getenv)
			if err != nil {
				return err
			}
			proposed, ok := set.OneGrant()
			if !ok {
				return problem.New(problem.Invalid, "%s does not hold exactly one document, of kind Grant", file)
			}
			ctx, c, done, err := a.asking(cmd.Context(), "deciding recorded calls anew", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			s, err := c.Simulate(ctx, proposed, time.Now().Add(-since))
			if err != nil {
				return err
			}
			return a.printer().One(s, func(w io.Writer) { writeSimulation(w, proposed, s) })
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the grant's file")
	cmd.Flags().DurationVar(&since, "since", 24*time.Hour, "how far back to look, at most 720h")
	_ = cmd.MarkFlagRequired("file") // it fails for a flag that is not there only
	return cmd
}

func writeSimulation(w io.Writer, g grant.Created, s ask.Simulation) {
	for _, c := range s.Changed {
		fmt.Fprintf(w, "%s  %s  %s %s\n    now:  %s, %s\n    then: %s, %s\n", render.Stamp(c.At), c.Call, render.Visible(c.Tool), render.Visible(c.Args),
			c.Now.Word, render.Visible(c.Now.Reason), c.Then.Word, render.Visible(c.Then.Reason))
	}
	fmt.Fprintf(w, "%d of %d calls of %s would come to something else\n", s.Differ, s.Looked, id.Name(g.Agent))
	if s.Truncated {
		fmt.Fprintln(w, "there were more calls than one simulation looks at; choose a shorter time with --since")
	}
}
