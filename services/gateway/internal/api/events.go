package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
)

// event is a recorded event as clients get it: the envelope as JSON, or as its bytes when it is none.
type event struct {
	Stream   string          `json:"stream"`
	Seq      uint64          `json:"seq"`
	Subject  string          `json:"subject"`
	Kind     string          `json:"kind"`
	StoredAt time.Time       `json:"stored_at"`
	Event    json.RawMessage `json:"event,omitempty"`
	Raw      []byte          `json:"raw,omitempty"`
}

func shown(e ask.Event) event {
	out := event{Stream: e.Stream, Seq: e.Seq, Subject: e.Subject, Kind: e.Kind, StoredAt: e.StoredAt}
	if json.Valid(e.Raw) && utf8.Valid(e.Raw) {
		out.Event = e.Raw
	} else {
		out.Raw = e.Raw
	}
	return out
}

// eventPage is a page of events, and the cursor to go on after.
type eventPage struct {
	Events []event `json:"events"`
	Next   string  `json:"next"`
	More   bool    `json:"more"`
}

func (a *API) events(r *http.Request, who auth.Identity, _ []byte) (eventPage, error) {
	q, err := query(r, "after", "run", "kind", "actor", "limit")
	if err != nil {
		return eventPage{}, err
	}
	filter, err := filters(q)
	if err != nil {
		return eventPage{}, err
	}
	if filter.Limit, err = limit(q.Get("limit")); err != nil {
		return eventPage{}, err
	}
	if filter.After, err = after(q); err != nil {
		return eventPage{}, err
	}
	page, err := a.Peers.Events(r.Context(), who, filter)
	return shownPage(page), err
}

// timeline gives a run's events, a page at a time.
func (a *API) timeline(r *http.Request, who auth.Identity, _ []byte) (eventPage, error) {
	run, err := id.ParseRun(r.PathValue("id"))
	if err != nil {
		return eventPage{}, problem.Wrap(err, problem.Invalid, "%v", err)
	}
	q, err := query(r, "after")
	if err != nil {
		return eventPage{}, err
	}
	from, err := after(q)
	if err != nil {
		return eventPage{}, err
	}
	page, err := a.Peers.Timeline(r.Context(), who, ask.Timeline{Run: run, After: from.Activity})
	return shownPage(page), err
}

func after(q url.Values) (ask.Cursor, error) {
	if text := q.Get("after"); text != "" {
		return follow.Parse(text)
	}
	return ask.Cursor{}, nil
}

func shownPage(page ask.EventPage) eventPage {
	out := eventPage{Events: make([]event, 0, len(page.Events)), Next: page.Next.String(), More: page.More}
	for _, e := range page.Events {
		out.Events = append(out.Events, shown(e))
	}
	return out
}

var (
	kindGlob   = regexp.MustCompile(`^[a-z_.*]{1,64}$`)
	actorValue = regexp.MustCompile(`^[a-z0-9_:-]{1,80}$`)
)

// filters reads which events are asked for. The ledger does the filtering.
func filters(q url.Values) (f ask.Events, err error) {
	if run := q.Get("run"); run != "" {
		if f.Run, err = id.ParseRun(run); err != nil {
			return f, problem.Wrap(err, problem.Invalid, "%v", err)
		}
	}
	f.Kind, f.Actor = q.Get("kind"), q.Get("actor")
	switch {
	case f.Kind != "" && !kindGlob.MatchString(f.Kind):
		return f, problem.New(problem.Invalid, "kind %.80q is not a kind of event, with * for any characters, such as call.*", f.Kind)
	case f.Actor != "" && !actorValue.MatchString(f.Actor):
		return f, problem.New(problem.Invalid, "actor %.80q is not an id, or service:name", f.Actor)
	}
	return f, nil
}
