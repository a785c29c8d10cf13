package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// Approvals lists approvals, the newest first; with open, only those that wait.
func (c *Client) Approvals(ctx context.Context, open bool) ([]ask.Approval, error) {
	list, err := get[ask.Approvals](ctx, c, "/v1/approvals", url.Values{"open": {strconv.FormatBool(open)}})
	return list.Approvals, err
}

// Approval finds one approval among those that the server lists: all that wait, as far as its list goes, then the
// newest of all.
func (c *Client) Approval(ctx context.Context, which id.Approval) (ask.Approval, error) {
	for _, open := range []bool{true, false} {
		list, err := c.Approvals(ctx, open)
		if err != nil {
			return ask.Approval{}, err
		}
		for _, a := range list {
			if a.Approval == which {
				return a, nil
			}
		}
	}
	return ask.Approval{}, problem.New(problem.NotFound, "approval %s is not among those that wait, nor among the newest; `execwarden approvals --all` lists them, and the ledger has the others: execwarden events tail --no-follow --kind 'approval.*'", which)
}

// Decide decides on an approval. digest is of what was looked at: the server refuses another.
func (c *Client) Decide(ctx context.Context, which id.Approval, digest string, approve bool, note string) (ask.Approval, error) {
	return send[ask.Approval](ctx, c, http.MethodPost, "/v1/approvals/"+segment(string(which))+"/decide", nil, struct {
		Digest  string `json:"digest"`
		Approve bool   `json:"approve"`
		Note    string `json:"note,omitempty"`
	}{digest, approve, note})
}
