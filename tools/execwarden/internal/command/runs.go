package command

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
	"github.com/execwarden/execwarden/tools/execwarden/internal/runstate"
)

// maxRuns is the largest page of runs.
const maxRuns = 100

func (a *app) runsCommand() *cobra.Command {
	limit, before := 20, ""
	cmd := &cobra.Command{
		Use:     "runs",
		Short:   "List runs; show, watch or cancel one",
		GroupID: groupWork,
		Args:    cobra.NoArgs,
		Long:    exits("Lists runs, the newest first.", nil),
		Example: "  execwarden runs\n  execwarden runs --limit 100 -o jsonl | jq -r 'select(.state == \"failed\") | .run'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxRuns {
				return usage("--limit %d is not from 1 to %d; --before goes on to older runs", limit, maxRuns)
			}
			ctx, c, done, err := a.asking(cmd.Context(), "asking for runs", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			page, err := c.Runs(ctx, limit, before)
			if err != nil {
				return err
			}
			if f := a.flags.output; f == render.JSON || f == render.YAML {
				return a.printer().Value(page)
			}
			if err := render.List(a.printer(), "runs", page.Runs, runGrid); err != nil {
				return err
			}
			if page.Next != "" {
				a.note("older runs: execwarden runs --before %s", page.Next)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "how many runs to list, at most "+strconv.Itoa(maxRuns))
	cmd.Flags().StringVar(&before, "before", "", "list runs older than a page's: what it gave as next")
	cmd.AddCommand(a.runsShowCommand(), a.runsWatchCommand(), a.runsCancelCommand())
	return cmd
}

var runTones = map[string]render.Tone{
	string(runstate.Waiting): render.Waits, string(runstate.Completed): render.Good,
	string(runstate.Failed): render.Bad, string(runstate.Cancelled): render.Bad,
}

func runGrid(list []ask.RunRow) *render.Grid {
	g := &render.Grid{Columns: []render.Column{{Name: "RUN"}, {Name: "AGENT"}, {Name: "STATE"}, {Name: "CREATED"}, {Name: "TOOK"}, {Name: "MESSAGE"}, {Name: "TRIGGER", Wide: true}, {Name: "EVENTS", Wide: true}}}
	for _, r := range list {
		trigger := ""
		if r.Trigger != "" {
			trigger = id.Name(id.Trigger(r.Trigger))
		}
		g.Row(render.Text(string(r.Run)), render.Text(id.Name(r.Agent)), render.Cell{Text: r.State, Tone: runTones[r.State]}, render.Text(render.Stamp(r.Created)),
			render.Text(took(r.Created, r.Ended)), render.Text(r.Message), render.Text(trigger), render.Text(strconv.Itoa(r.Events)))
	}
	return g
}

func took(from, to time.Time) string {
	if from.IsZero() || to.IsZero() {
		return ""
	}
	return to.Sub(from).Round(10 * time.Millisecond).String()
}
