package console

import (
	"net/http"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
	"github.com/execwarden/execwarden/services/gateway/internal/sse"
)

// live streams fragments of a page. It begins where the page was, or where the browser was when it lost the stream.
func (c *Console) live(w http.ResponseWriter, r *http.Request, who auth.Identity, q ask.Events, reader func(*fragments) follow.Reader) error {
	var from *ask.Cursor
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	if text != "" {
		at, err := follow.Parse(text)
		if err != nil {
			return err
		}
		from = &at
	}
	place, err := c.Hub.Enter(who)
	if err != nil {
		return err
	}
	defer place.Leave()
	out, err := sse.Start(w)
	if err == nil {
		_ = place.Follow(r.Context(), from, q, reader(&fragments{out})) // the browser is gone, or was told
	}
	return nil
}

// fragments is what all live parts of pages have in common.
type fragments struct{ out *sse.Writer }

// Notice tells the page's status line.
func (f *fragments) Notice(d problem.Detail) error {
	return f.out.Event("", "notice", []byte(d.Message))
}

func (f *fragments) Beat(at *ask.Cursor) error {
	if at == nil {
		return f.out.Beat("")
	}
	return f.out.Beat(at.String())
}

// appended sends each event as a fragment to put after the last one.
type appended struct{ *fragments }

func (a *appended) Event(e ask.Event, at ask.Cursor) error {
	html, err := render("event", lineOf(e))
	if err != nil {
		return err
	}
	return a.out.Event(at.String(), "", html)
}

// News tells the page's status line: it is gone with the next, as what it says is.
func (a *appended) News(said call.News) error {
	return a.out.Event("", "notice", []byte(visible(short(said.String()))))
}

func (a *appended) Caught(ask.Cursor) error { return nil }

// redrawEvery keeps a busy tenant from redrawing a list for every event.
const redrawEvery = time.Second

// whole sends a part of the page anew after something happened that concerns it, and once at first: things may have
// happened between the page and the stream.
type whole struct {
	*fragments
	render func() ([]byte, error)
	fresh  bool
	drawn  time.Time
}

func (w *whole) Event(ask.Event, ask.Cursor) error {
	w.fresh = false
	return nil
}

func (w *whole) Caught(at ask.Cursor) error {
	if w.fresh || time.Since(w.drawn) < redrawEvery {
		return nil
	}
	w.drawn = time.Now()
	html, err := w.render()
	if err != nil {
		return w.Notice(problem.DetailOf(err)) // and tried again
	}
	w.fresh = true
	return w.out.Event(at.String(), "", html)
}
