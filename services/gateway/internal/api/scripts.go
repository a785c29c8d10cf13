package api

import (
	"encoding/json"
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// scriptInput is a script that a person has an agent run. Name is for whoever reads the list of runs.
type scriptInput struct {
	Source string          `json:"source"`
	Input  json.RawMessage `json:"input,omitempty"`
	Name   string          `json:"name,omitempty"`
}

// maxKey is the longest Idempotency-Key, in bytes.
const maxKey = 200

// runScript starts a run that asks no model: its one call is the script. Asked again under the same key, it is the same
// run.
func (a *API) runScript(r *http.Request, who auth.Identity, body []byte) (ask.Started, error) {
	agent, err := named[id.Agent](r)
	if err != nil {
		return ask.Started{}, err
	}
	in, err := read[scriptInput](r, body)
	if err != nil {
		return ask.Started{}, err
	}
	if in.Source == "" {
		return ask.Started{}, problem.New(problem.Invalid, "a script needs a source")
	}
	q := ask.StartRun{Agent: agent, Prompt: in.Name, Script: in.Source, Input: in.Input}
	switch key := r.Header.Get("Idempotency-Key"); {
	case len(key) > maxKey:
		return ask.Started{}, problem.New(problem.Invalid, "an Idempotency-Key has at most %d bytes", maxKey)
	case key != "":
		q.Run = id.Derive[id.Run](string(who.Tenant), string(who.Member), "script", key)
	}
	return a.Peers.StartRun(r.Context(), who, q)
}
