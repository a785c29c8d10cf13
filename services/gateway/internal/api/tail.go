package api

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
	"github.com/execwarden/execwarden/services/gateway/internal/sse"
)

// tail streams events as they are recorded, after Last-Event-ID or ?after=, or else from now on.
func (a *API) tail(w http.ResponseWriter, r *http.Request, who auth.Identity, _ []byte) error {
	q, err := query(r, "after", "from", "run", "kind", "actor")
	if err != nil {
		return err
	}
	filter, err := filters(q)
	if err != nil {
		return err
	}
	from, err := start(r, q)
	if err != nil {
		return err
	}
	place, err := a.Hub.Enter(who)
	if err != nil {
		return err
	}
	defer place.Leave()
	out, err := sse.Start(w)
	if err == nil {
		_ = place.Follow(r.Context(), from, filter, tailer{out}) // the reader is gone, or was told
	}
	return nil
}

// start reads where a tail begins; nil is now. What a client reconnects with counts before what it first asked for.
func start(r *http.Request, q url.Values) (*ask.Cursor, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = q.Get("after")
	}
	switch from := q.Get("from"); {
	case from != "" && from != "now" && from != "start":
		return nil, problem.New(problem.Invalid, "from is now or start; after takes a cursor")
	case text != "":
		c, err := follow.Parse(text)
		return &c, err
	case from == "start":
		return &ask.Cursor{}, nil
	}
	return nil, nil
}

// tailer writes events as JSON.
type tailer struct{ out *sse.Writer }

func (t tailer) Event(e ask.Event, at ask.Cursor) error {
	data, err := json.Marshal(shown(e))
	if err != nil {
		return problem.Wrap(err, problem.Internal, "event %s:%d cannot be written", e.Stream, e.Seq)
	}
	return t.out.Event(at.String(), "", data)
}

func (t tailer) Caught(ask.Cursor) error { return nil }

func (t tailer) Notice(d problem.Detail) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return t.out.Event("", "notice", data)
}

// News tells what a call says while it runs, as a message named "news".
func (t tailer) News(said call.News) error {
	data, err := json.Marshal(said)
	if err != nil {
		return err
	}
	return t.out.Event("", "news", data)
}

func (t tailer) Beat(at *ask.Cursor) error {
	if at == nil {
		return t.out.Beat("")
	}
	return t.out.Beat(at.String())
}
