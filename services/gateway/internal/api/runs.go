package api

import (
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

func (a *API) runs(r *http.Request, who auth.Identity, _ []byte) (ask.RunPage, error) {
	q, err := query(r, "limit", "before")
	if err != nil {
		return ask.RunPage{}, err
	}
	n, err := limit(q.Get("limit"))
	if err != nil {
		return ask.RunPage{}, err
	}
	before := q.Get("before")
	if len(before) > maxCursor {
		return ask.RunPage{}, problem.New(problem.Invalid, "before is not what a page gave as its next")
	}
	page, err := a.Peers.Runs(r.Context(), who, ask.Runs{Limit: n, Before: before})
	if page.Runs == nil {
		page.Runs = []ask.RunRow{}
	}
	return page, err
}

// maxCursor is longer than any cursor of ours.
const maxCursor = 100

type runInput struct {
	Agent  string `json:"agent"`
	Prompt string `json:"prompt"`
}

func (a *API) startRun(r *http.Request, who auth.Identity, body []byte) (ask.Started, error) {
	in, err := read[runInput](r, body)
	if err != nil {
		return ask.Started{}, err
	}
	agent, err := refer[id.Agent](in.Agent)
	if err != nil {
		return ask.Started{}, err
	}
	if in.Prompt == "" {
		return ask.Started{}, problem.New(problem.Invalid, "a run needs a prompt")
	}
	return a.Peers.StartRun(r.Context(), who, ask.StartRun{Agent: agent, Prompt: in.Prompt})
}

type cancellation struct {
	Reason string `json:"reason,omitempty"`
}

func (a *API) cancelRun(r *http.Request, who auth.Identity, body []byte) (ask.Done, error) {
	run, err := minted[id.Run](r)
	if err != nil {
		return ask.Done{}, err
	}
	in, err := readOptional[cancellation](r, body)
	if err != nil {
		return ask.Done{}, err
	}
	return a.Peers.CancelRun(r.Context(), who, ask.CancelRun{Run: run, Reason: in.Reason})
}
