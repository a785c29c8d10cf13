package client

import (
	"context"
	"io"
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
)

// Artifacts lists what is kept for a session, a run of one, or a conversation.
func (c *Client) Artifacts(ctx context.Context, of string) (ask.Artifacts, error) {
	return get[ask.Artifacts](ctx, c, "/v1/sessions/"+segment(of)+"/artifacts", nil)
}

// Artifact gives a kept value and its media type.
func (c *Client) Artifact(ctx context.Context, of, name string) (value []byte, kind string, err error) {
	resp, err := c.open(ctx, http.MethodGet, "/v1/sessions/"+segment(of)+"/artifacts/"+segment(name), nil, nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	value, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, "", c.unreachable(ctx, err)
	case len(value) > maxAnswer:
		return nil, "", problem.New(problem.TooLarge, "the artifact is over %d bytes", maxAnswer)
	}
	return value, resp.Header.Get("Content-Type"), nil
}
