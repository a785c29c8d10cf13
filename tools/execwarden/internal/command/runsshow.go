package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
	"github.com/execwarden/execwarden/tools/execwarden/internal/runstate"
)

func (a *app) runsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: its state, its timeline and its result",
		Args:  cobra.ExactArgs(1),
		Long: exits(`Shows a run as far as the ledger has recorded it: its state, everything that happened in it, and its result.
Whatever the run's own state is, the code is 0 when it could be shown.`, map[int]string{4: "there is no such run"}),
		Example: "  execwarden runs show run_0197f0c2...\n  execwarden runs show run_0197f0c2... -o json | jq .state",
		RunE: func(cmd *cobra.Command, args []string) error {
			which, err := runID(args[0])
			if err != nil {
				return err
			}
			ctx, c, done, err := a.asking(cmd.Context(), "reading the run's events", answersWithin)
			if err != nil {
				return err
			}
			defer done()
			run := runstate.New(which)
			var events []client.Event
			_, err = timeline(ctx, c, which, func(e client.Event) error {
				run.Apply(e)
				events = append(events, e)
				return nil
			})
			if err != nil {
				return err
			}
			return a.showRun(run, events)
		},
	}
}

// timeline gives to each everything that is recorded of a run, and gives the place after it.
func timeline(ctx context.Context, c *client.Client, which id.Run, each func(client.Event) error) (client.Cursor, error) {
	var at client.Cursor
	found := false
	for {
		page, err := c.Timeline(ctx, which, at)
		if err != nil {
			return at, err
		}
		for _, e := range page.Events {
			found = true
			if err := each(e); err != nil {
				return at, err
			}
		}
		moved := page.Next != at
		at = page.Next
		if page.More && moved {
			continue
		}
		if !found {
			return at, problem.New(problem.NotFound, "there is no run %s, or the ledger has not recorded it yet; execwarden runs lists what there is", which)
		}
		return at, nil
	}
}

func runID(text string) (id.Run, error) {
	which, err := id.ParseRun(text)
	if err != nil {
		return "", usage("%v; execwarden runs lists them", err)
	}
	return which, nil
}

func (a *app) showRun(r *runstate.Run, events []client.Event) error {
	p := a.printer()
	if !p.Format.ForPeople() {
		return p.Value(struct {
			*runstate.Run
			Events []client.Event `json:"events"`
		}{r, events})
	}
	err := p.One(nil, func(w io.Writer) {
		line := func(name, text string) {
			if text != "" {
				fmt.Fprintf(w, "%-9s %s\n", name+":", render.Visible(text))
			}
		}
		if r.Created.IsZero() { // of an external agent: it has calls, and is no run
			line("calls of", string(r.Run))
			fmt.Fprintln(w)
			return
		}
		line("run", string(r.Run))
		line("agent", id.Name(r.Agent))
		line("state", string(r.State))
		if r.Trigger != "" {
			line("trigger", id.Name(r.Trigger))
		}
		line("created", render.Stamp(r.Created))
		line("ended", render.Stamp(r.Ended))
		line("used", fmt.Sprintf("%d steps, %d calls, %d tokens", r.Steps, r.Calls, r.Tokens))
		for _, waits := range r.Waits {
			line("waits", fmt.Sprintf("for a person: execwarden approvals show %s", waits))
		}
		line("prompt", r.Prompt)
		fmt.Fprintln(w)
	})
	for _, e := range events {
		if err == nil {
			err = p.EventLine(e)
		}
	}
	if err != nil || !r.Over() {
		return err
	}
	return p.One(nil, func(w io.Writer) {
		switch {
		case r.Apart != "":
			fmt.Fprintf(w, "\nresult: too large for an event; it is kept apart, as %s\n", render.Inline(r.Apart))
		case r.State == runstate.Completed:
			fmt.Fprintf(w, "\nresult:\n%s\n", render.Visible(r.Result))
		default:
			fmt.Fprintf(w, "\n%s%s\n", r.State, render.Visible(reasonOf(r.Message)))
		}
	})
}
