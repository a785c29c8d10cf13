package command

import (
	"context"
	"errors"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/execwarden/internal/render"
	"github.com/execwarden/execwarden/tools/execwarden/internal/runstate"
)

// watch follows a run to its end.
type watch struct {
	app   *app
	run   *runstate.Run
	lines *render.Printer
	leave bool // when a person has to decide
}

// errEnough ends the following of a run of which everything that was wanted is known.
var errEnough = errors.New("enough")

// follow returns when the run has ended, or, if the watch leaves then, waits for a person.
func (w *watch) follow(ctx context.Context, c *client.Client, after client.Cursor) error {
	_, err := c.Tail(ctx, client.Filter{Run: string(w.run.Run)}, after, w)
	switch {
	case errors.Is(err, errEnough) && !w.run.Over():
		return problem.New(problem.Held, "%s waits for a person to decide on %s: execwarden approvals show %s", w.run.Run, w.run.Waits[0], w.run.Waits[0])
	case errors.Is(err, errEnough):
		return nil
	case ctx.Err() != nil:
		w.app.note("%s goes on; follow it: execwarden runs watch %s; stop it: execwarden runs cancel %s", w.run.Run, w.run.Run, w.run.Run)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return problem.Wrap(err, problem.Timeout, "%s has not ended within --timeout", w.run.Run)
		}
	}
	return err
}

// Event implements client.Reader.
func (w *watch) Event(e client.Event, _ client.Cursor) error {
	if err := w.past(e); err != nil {
		return err
	}
	if e.Kind == (approval.Requested{}).Kind() {
		w.hint()
	}
	if w.run.Over() || w.leave && w.run.State == runstate.Waiting {
		return errEnough
	}
	return nil
}

// past shows an event and takes it in.
func (w *watch) past(e client.Event) error {
	w.run.Apply(e)
	return w.lines.Event(e)
}

func (w *watch) hint() {
	if n := len(w.run.Waits); n > 0 {
		w.app.note("waits for a person; look and decide: execwarden approvals approve|deny %s", w.run.Waits[n-1])
	}
}

// News implements client.NewsReader.
func (w *watch) News(said call.News) { w.app.note("%s", render.Inline(said.String())) }

// Notice implements client.Reader.
func (w *watch) Notice(d problem.Detail) { w.app.note("notice: %s", d.Message) }

// Gap implements client.Reader.
func (w *watch) Gap(d problem.Detail) { w.app.note("gap: %s", d.Message) }
