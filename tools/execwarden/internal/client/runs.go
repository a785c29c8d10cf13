package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// StartRun starts a run. It is not repeated when there is no answer: there may be a run.
func (c *Client) StartRun(ctx context.Context, agent, prompt string) (ask.Started, error) {
	return send[ask.Started](ctx, c, http.MethodPost, "/v1/runs", nil, struct {
		Agent  string `json:"agent"`
		Prompt string `json:"prompt"`
	}{agent, prompt})
}

// RunScript has an agent run a script that a person wrote. A lost answer costs nothing: it is asked again under the same
// key, once.
func (c *Client) RunScript(ctx context.Context, agent, name, source string, input json.RawMessage) (ask.Started, error) {
	body := struct {
		Source string          `json:"source"`
		Input  json.RawMessage `json:"input,omitempty"`
		Name   string          `json:"name,omitempty"`
	}{source, input, name}
	header := http.Header{"Idempotency-Key": {rand.Text()}}
	path := "/v1/agents/" + segment(agent) + "/scripts"
	started, err := sendWith[ask.Started](ctx, c, http.MethodPost, path, nil, body, header)
	if problem.CodeOf(err) == problem.Unavailable && ctx.Err() == nil {
		started, err = sendWith[ask.Started](ctx, c, http.MethodPost, path, nil, body, header)
	}
	return started, err
}

// Runs lists a page of runs, the newest first. before is what the page before called next.
func (c *Client) Runs(ctx context.Context, limit int, before string) (ask.RunPage, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if before != "" {
		query.Set("before", before)
	}
	return get[ask.RunPage](ctx, c, "/v1/runs", query)
}

// Timeline gives a page of what happened in a run.
func (c *Client) Timeline(ctx context.Context, run id.Run, after Cursor) (EventPage, error) {
	return get[EventPage](ctx, c, "/v1/runs/"+segment(string(run))+"/timeline", url.Values{"after": {after.String()}})
}

// CancelRun asks a run to stop.
func (c *Client) CancelRun(ctx context.Context, run id.Run, reason string) error {
	_, err := send[ask.Done](ctx, c, http.MethodPost, "/v1/runs/"+segment(string(run))+"/cancel", nil, struct {
		Reason string `json:"reason,omitempty"`
	}{reason})
	return err
}
