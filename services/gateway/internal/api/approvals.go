package api

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

func (a *API) approvals(r *http.Request, who auth.Identity, _ []byte) (ask.Approvals, error) {
	q, err := query(r, "open", "limit", "before")
	if err != nil {
		return ask.Approvals{}, err
	}
	open := false
	if text := q.Get("open"); text != "" {
		if open, err = strconv.ParseBool(text); err != nil {
			return ask.Approvals{}, problem.New(problem.Invalid, "open is true or false")
		}
	}
	n, err := limit(q.Get("limit"))
	if err != nil {
		return ask.Approvals{}, err
	}
	before := q.Get("before")
	if len(before) > maxCursor {
		return ask.Approvals{}, problem.New(problem.Invalid, "before is not what a page gave as its next")
	}
	list, err := a.Peers.Approvals(r.Context(), who, ask.ListApprovals{Open: open, Limit: min(n, maxApprovals), Before: before})
	if list.Approvals == nil {
		list.Approvals = []ask.Approval{}
	}
	return list, err
}

func (a *API) approval(r *http.Request, who auth.Identity, _ []byte) (ask.Approval, error) {
	approval, err := minted[id.Approval](r)
	if err != nil {
		return ask.Approval{}, err
	}
	return a.Peers.Approval(r.Context(), who, approval)
}

type edit struct {
	Digest string          `json:"digest"`
	Args   json.RawMessage `json:"args"`
	Note   string          `json:"note,omitempty"`
}

func (a *API) editApproval(r *http.Request, who auth.Identity, body []byte) (ask.Approval, error) {
	approval, err := minted[id.Approval](r)
	if err != nil {
		return ask.Approval{}, err
	}
	in, err := read[edit](r, body)
	if err != nil {
		return ask.Approval{}, err
	}
	if in.Digest == "" || len(in.Args) == 0 {
		return ask.Approval{}, problem.New(problem.Invalid, "an edit has args, whole, and the digest of what was looked at")
	}
	return a.Peers.EditApproval(r.Context(), who, ask.EditApproval{Approval: approval, Digest: in.Digest, Args: in.Args, Note: in.Note})
}

// maxApprovals is the largest page of approvals.
const maxApprovals = 100

// decision has no default: an approval that was left out by mistake must not be one.
type decision struct {
	Digest  string `json:"digest"`
	Approve *bool  `json:"approve"`
	ForRun  bool   `json:"for_run,omitempty"`
	Note    string `json:"note,omitempty"`
}

func (a *API) decide(r *http.Request, who auth.Identity, body []byte) (ask.Approval, error) {
	approval, err := minted[id.Approval](r)
	if err != nil {
		return ask.Approval{}, err
	}
	in, err := read[decision](r, body)
	if err != nil {
		return ask.Approval{}, err
	}
	if in.Digest == "" || in.Approve == nil {
		return ask.Approval{}, problem.New(problem.Invalid, "a decision says approve, true or false, and the digest of what was looked at")
	}
	return a.Peers.Decide(r.Context(), who, ask.DecideApproval{Approval: approval, Digest: in.Digest, Approve: *in.Approve, ForRun: in.ForRun, Note: in.Note})
}
