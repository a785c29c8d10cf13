package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
)

func (a *app) eventsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "Follow what happens",
		GroupID: groupProof,
		Args:    cobra.NoArgs,
		Long:    "Everything that is configured and everything that happens is an event, which the ledger records.",
		Example: "  execwarden events tail",
	}
	cmd.AddCommand(a.eventsTailCommand())
	return cmd
}

func (a *app) eventsTailCommand() *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow events as they are recorded",
		Args:  cobra.NoArgs,
		Long: exits(`Shows events as they are recorded, one per line: when, where (stream:sequence), which kind, who, and in a few words.
With -o json or jsonl each line is one whole event, with -o yaml a document each.

It begins now; with --after at a place, with --since-start at the beginning. A lost connection is made again and goes
on where it was. When it ends, the place to go on from is told on standard error. Something that had to be left out is
told there too, on a line that begins with "gap:".`, map[int]string{0: "ok (with --no-follow), or whoever reads has read enough"}),
		Example: `  execwarden events tail --kind 'call.*'
  execwarden events tail --after 12:3456 -o jsonl >> events.jsonl
  execwarden events tail --no-follow --run run_0197f0c2... -o jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.tail(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.after, "after", "", "begin after this place, such as 12:3456")
	f.BoolVar(&o.sinceStart, "since-start", false, "begin at the first event")
	f.StringVar(&o.filter.Run, "run", "", "only events of this run")
	f.StringVar(&o.filter.Kind, "kind", "", "only events of this kind; * stands for any characters, such as call.*")
	f.StringVar(&o.filter.Actor, "actor", "", "only what this member, agent or service did")
	f.BoolVar(&o.noFollow, "no-follow", false, "end after what is recorded; begins at the first event unless --after is given")
	cmd.MarkFlagsMutuallyExclusive("after", "since-start")
	return cmd
}

type tailOptions struct {
	after                string
	sinceStart, noFollow bool
	filter               client.Filter
}

func (a *app) tail(ctx context.Context, o tailOptions) error {
	var at client.Cursor
	var err error
	if o.after != "" {
		if at, err = client.ParseCursor(o.after); err != nil {
			return err
		}
	}
	if o.filter.Run != "" {
		if _, err := runID(o.filter.Run); err != nil {
			return err
		}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := a.within(ctx, 0)
	defer cancel()
	to := &tailReader{app: a, out: a.printer()}
	switch {
	case o.noFollow:
		at, err = readAll(ctx, c, o.filter, at, to)
	default:
		if o.after == "" && !o.sinceStart {
			// Where now is has to be known: a connection that is lost at once would otherwise go on from a later now.
			if at, err = c.Position(ctx); err != nil {
				return err
			}
		}
		at, err = c.Tail(ctx, o.filter, at, to)
	}
	a.note("to go on: execwarden events tail --after %s", at)
	return err
}

// readAll reads what is recorded, page by page, and gives the place that was reached.
func readAll(ctx context.Context, c *client.Client, f client.Filter, at client.Cursor, to client.Reader) (client.Cursor, error) {
	for {
		page, err := c.Events(ctx, f, at)
		if err != nil {
			return at, err
		}
		for _, e := range page.Events {
			next := at.Past(e)
			if err := to.Event(e, next); err != nil {
				return at, err
			}
			at = next
		}
		moved := page.Next != at || len(page.Events) > 0
		at = page.Next
		if !page.More || !moved {
			return at, nil
		}
	}
}

// tailReader writes what is followed.
type tailReader struct {
	app *app
	out *render.Printer
}

// Event implements client.Reader.
func (t *tailReader) Event(e client.Event, _ client.Cursor) error { return t.out.Event(e) }

// News implements client.NewsReader: of a run that is followed.
func (t *tailReader) News(said call.News) { t.app.note("%s", render.Inline(said.String())) }

// Notice implements client.Reader.
func (t *tailReader) Notice(d problem.Detail) { t.app.note("notice: %s", d.Message) }

// Gap implements client.Reader.
func (t *tailReader) Gap(d problem.Detail) { t.app.note("gap: %s", d.Message) }
