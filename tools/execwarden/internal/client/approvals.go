package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// maxPages bounds what is listed at once.
const maxPages = 100

// Approvals lists approvals, the newest first, page by page; with open, only those that wait.
func (c *Client) Approvals(ctx context.Context, open bool) ([]ask.Approval, error) {
	var all []ask.Approval
	q := url.Values{"open": {strconv.FormatBool(open)}}
	for range maxPages {
		page, err := get[ask.Approvals](ctx, c, "/v1/approvals", q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Approvals...)
		if page.Next == "" {
			return all, nil
		}
		q.Set("before", page.Next)
	}
	return nil, problem.New(problem.TooLarge, "there are more approvals than %d pages hold; decide or deny some, or ask the API page by page", maxPages)
}

// Approval shows one approval. Problems: not_found.
func (c *Client) Approval(ctx context.Context, which id.Approval) (ask.Approval, error) {
	return get[ask.Approval](ctx, c, "/v1/approvals/"+segment(string(which)), nil)
}

// EditApproval puts other arguments in the place of those that wait. digest is of what was looked at.
func (c *Client) EditApproval(ctx context.Context, which id.Approval, digest string, args json.RawMessage, note string) (ask.Approval, error) {
	return send[ask.Approval](ctx, c, http.MethodPost, "/v1/approvals/"+segment(string(which))+"/edit", nil, struct {
		Digest string          `json:"digest"`
		Args   json.RawMessage `json:"args"`
		Note   string          `json:"note,omitempty"`
	}{digest, args, note})
}

// Decision is what a member decides. Digest is of what was looked at: the server refuses another.
type Decision struct {
	Digest  string `json:"digest"`
	Approve bool   `json:"approve"`
	ForRun  bool   `json:"for_run,omitempty"`
	Note    string `json:"note,omitempty"`
}

// Decide decides on an approval.
func (c *Client) Decide(ctx context.Context, which id.Approval, d Decision) (ask.Approval, error) {
	return send[ask.Approval](ctx, c, http.MethodPost, "/v1/approvals/"+segment(string(which))+"/decide", nil, d)
}
