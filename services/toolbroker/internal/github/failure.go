package github

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// refusal is an answer that a tool gives in place of a result: it had no effect, and the model can do something about it.
type refusal struct {
	Text       string `json:"error"`
	RetryAfter int    `json:"retry_after_seconds,omitempty"`
}

func (r *refusal) Error() string { return r.Text }

// ours are the codes of what this package itself found wrong, in words that are better than any about GitHub.
var ours = []problem.Code{problem.Denied, problem.Invalid, problem.NotFound, problem.TooLarge, problem.Busy, problem.Upstream}

// failed tells what GitHub said apart from what went wrong on the way. What GitHub refused had no effect and is the
// tool's own error; an answer that never came may have had one when a request with an effect was sent.
func failed(err error, sent bool) (upstream.Result, error) {
	var own *refusal
	var limit *limited
	var refused *github.ErrorResponse
	var fault *problem.Error
	switch {
	case errors.As(err, &own):
		return toolError(own)
	case errors.As(err, &limit):
		return toolError(&refusal{Text: limit.Error(), RetryAfter: int(math.Ceil(limit.after.Seconds()))})
	case errors.As(err, &refused) && refused.Response.StatusCode < 500:
		return toolError(&refusal{Text: saidNo(refused)})
	case errors.As(err, &fault) && !sent && slices.Contains(ours, fault.Code):
		return upstream.Result{}, fault
	}
	wrapped := error(problem.Wrap(err, problem.Upstream, "GitHub did not answer the call"))
	if sent {
		wrapped = upstream.Ambiguously(wrapped)
	}
	return upstream.Result{}, wrapped
}

// saidNo is GitHub's refusal in words, with the fields that it names.
func saidNo(r *github.ErrorResponse) string {
	var b strings.Builder
	b.WriteString("GitHub answered " + r.Response.Status)
	if r.Message != "" {
		b.WriteString(": " + clip(r.Message, 500))
	}
	for i, e := range r.Errors {
		if i == 5 {
			break
		}
		b.WriteString("; " + clip(strings.Join(strings.Fields(e.Resource+" "+e.Field+" "+e.Code+" "+e.Message), " "), 200))
	}
	switch code := r.Response.StatusCode; {
	case code == 301 || code == 307 || code == 308:
		b.WriteString("; the repository was renamed or moved, which a redirect says and we do not follow: use its new name")
	case code == 404:
		b.WriteString("; there is no such thing, or the credential may not see it")
	}
	return b.String()
}

// refusedWith gives GitHub's refusal when it has one of some statuses.
func refusedWith(err error, statuses ...int) *github.ErrorResponse {
	var r *github.ErrorResponse
	if errors.As(err, &r) {
		for _, s := range statuses {
			if r.Response.StatusCode == s {
				return r
			}
		}
	}
	return nil
}

// hinted adds to a refusal what to do about it.
func hinted(r *github.ErrorResponse, hint string) error {
	return &refusal{Text: saidNo(r) + "; " + hint}
}

// missing says whether err is GitHub's answer that something is not there.
func missing(err error) bool { return refusedWith(err, 404) != nil }

func toolError(r *refusal) (upstream.Result, error) {
	raw, err := json.Marshal(r)
	return upstream.Result{Content: raw, ToolError: true}, err
}

func clip(s string, n int) string { return whole(s[:min(len(s), n)]) }

// incomplete is the error of an answer that was not the whole of one: the library takes an empty answer for an empty
// thing.
func incomplete(what string) error {
	return problem.New(problem.Upstream, "GitHub's answer names no %s", what)
}
