package github_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// blobHi is git's name of a file that holds "hi".
const blobHi = "32f95c0d1244a78b2be1bab8de17906fabb2c4a8"

// Each probe in the crash pair: the effect happened and nobody knows, or it did not happen. after is GitHub with the
// effect of call_1, before without it, often with that of call_12, which is not ours.
func TestProbePairs(t *testing.T) {
	head := map[string]string{"GET /repos/acme/shop/git/ref/heads/main": `{"object":{"sha":"` + sha1 + `"}}`}
	with := func(more map[string]string) map[string]string {
		out := maps.Clone(head)
		maps.Copy(out, more)
		return out
	}
	const ours, others = `x\n\n<!-- execwarden:call_1 -->`, `x\n\n<!-- execwarden:call_12 -->`
	list := func(path, format string) (after, before map[string]string) {
		return map[string]string{"GET " + path: "[" + fmt.Sprintf(format, ours) + "]"}, map[string]string{"GET " + path: "[" + fmt.Sprintf(format, others) + "]"}
	}
	comments, noComments := list("/repos/acme/shop/issues/7/comments", `{"id":42,"body":"%s"}`)
	issues, noIssues := list("/repos/acme/shop/issues", `{"number":7,"body":"%s"}`)
	pulls, noPulls := list("/repos/acme/shop/pulls", `{"number":7,"body":"%s"}`)
	replies, noReplies := list("/repos/acme/shop/pulls/7/comments", `{"id":42,"body":"%s"}`)
	reviews, noReviews := list("/repos/acme/shop/pulls/7/reviews", `{"id":42,"state":"APPROVED","body":"%s"}`)
	pendingReviews, noPendingReviews := list("/repos/acme/shop/pulls/7/reviews/42/comments", `{"id":42,"node_id":"PRRC_x","body":"%s"}`)
	pending := `[{"id":42,"state":"PENDING","body":"` + ours + `"}]`
	pendingReviews["GET /repos/acme/shop/pulls/7/reviews"], noPendingReviews["GET /repos/acme/shop/pulls/7/reviews"] = pending, pending
	thread := func(resolved bool) map[string]string {
		return map[string]string{"POST /graphql": fmt.Sprintf(`{"data":{"node":{"id":"PRRT_x","isResolved":%v,"pullRequest":{"number":7,"repository":{"nameWithOwner":"acme/shop"}}}}}`, resolved)}
	}
	one := func(path, answer string) map[string]string { return map[string]string{"GET " + path: answer} }
	const file, issue, pull = "/repos/acme/shop/contents/a.txt", "/repos/acme/shop/issues/7", "/repos/acme/shop/pulls/7"
	probed := map[string]bool{}
	for name, c := range map[string]struct {
		tool, args    string
		after, before map[string]string
	}{
		"comment":            {"add_issue_comment", `"issue_number":7,"body":"x"`, comments, noComments},
		"issue":              {"issue_write", `"method":"create","title":"T"`, issues, noIssues},
		"issue's changes":    {"issue_write", `"method":"update","issue_number":7,"state":"closed","labels":["b","A"]`, one(issue, `{"number":7,"state":"closed","labels":[{"name":"a"},{"name":"b"}]}`), one(issue, `{"number":7,"state":"open","labels":[{"name":"a"},{"name":"b"}]}`)},
		"pull request":       {"create_pull_request", `"title":"T","head":"topic","base":"main"`, pulls, noPulls},
		"pull's changes":     {"update_pull_request", `"pullNumber":7,"title":"Fix","reviewers":["hubot"]`, one(pull, aPull), one(pull, strings.ReplaceAll(aPull, "hubot", "other"))},
		"merge":              {"merge_pull_request", `"pullNumber":7,"expectedHeadSha":"` + sha1 + `"`, one(pull, `{"number":7,"merged":true,"merge_commit_sha":"`+sha1+`"}`), one(pull, `{"number":7,"merged":false,"merge_commit_sha":"`+sha1+`"}`)},
		"reply":              {"add_reply_to_pull_request_comment", `"pullNumber":7,"commentId":5,"body":"x"`, replies, noReplies},
		"review":             {"pull_request_review_write", `"method":"create","pullNumber":7,"event":"APPROVE"`, reviews, noReviews},
		"submitted review":   {"pull_request_review_write", `"method":"submit_pending","pullNumber":7,"event":"APPROVE"`, reviews, one("/repos/acme/shop/pulls/7/reviews", pending)},
		"deleted review":     {"pull_request_review_write", `"method":"delete_pending","pullNumber":7`, reviews, one("/repos/acme/shop/pulls/7/reviews", pending)},
		"resolved thread":    {"pull_request_review_write", `"method":"resolve_thread","pullNumber":7,"threadId":"PRRT_x"`, thread(true), thread(false)},
		"unresolved thread":  {"pull_request_review_write", `"method":"unresolve_thread","pullNumber":7,"threadId":"PRRT_x"`, thread(false), thread(true)},
		"pending comment":    {"add_comment_to_pending_review", `"pullNumber":7,"path":"a","line":3,"body":"x"`, pendingReviews, noPendingReviews},
		"branch":             {"create_branch", `"branch":"topic","from_branch":"main"`, with(one("/repos/acme/shop/git/ref/heads/topic", `{"object":{"sha":"`+sha1+`"}}`)), with(one("/repos/acme/shop/git/ref/heads/topic", `404 {}`))},
		"branch of somebody": {"create_branch", `"branch":"topic","from_branch":"main"`, with(one("/repos/acme/shop/git/ref/heads/topic", `{"object":{"sha":"`+sha1+`"}}`)), with(one("/repos/acme/shop/git/ref/heads/topic", `{"object":{"sha":"`+sha2+`"}}`))},
		"file":               {"create_or_update_file", `"path":"a.txt","content":"hi","message":"m","branch":"main"`, one(file, `{"type":"file","sha":"`+blobHi+`"}`), one(file, `{"type":"file","sha":"`+sha1+`"}`)},
		"new file":           {"create_or_update_file", `"path":"a.txt","content":"hi","message":"m","branch":"main"`, one(file, `{"type":"file","sha":"`+blobHi+`"}`), one(file, `404 {}`)},
		"files":              {"push_files", `"branch":"main","message":"m","files":[{"path":"a.txt","content":"hi"}]`, with(one(file, `{"type":"file","sha":"`+blobHi+`"}`)), with(one(file, `{"type":"file","sha":"`+sha1+`"}`))},
		"deletion":           {"delete_file", `"path":"a.txt","message":"m","branch":"main"`, with(one(file, `404 {}`)), with(one(file, `{"type":"file","sha":"`+sha1+`"}`))},
	} {
		probed[c.tool] = true
		for happened, answers := range map[bool]map[string]string{true: c.after, false: c.before} {
			t.Run(fmt.Sprintf("%s/happened %v", name, happened), func(t *testing.T) {
				h := start(t, table(t, answers))
				got, found, err := h.Probe(t.Context(), upstream.Call{Tool: c.tool, Args: json.RawMessage(`{"owner":"acme","repo":"shop",` + c.args + `}`), Effect: "call_1"})
				if err != nil || found != happened || found && !json.Valid(got.Content) {
					t.Errorf("%s, %v, %v", got.Content, found, err)
				}
				for _, asked := range h.requests() {
					if !strings.HasPrefix(asked, "GET ") && !strings.HasPrefix(asked, "POST /graphql ") {
						t.Errorf("looking asked %s", asked)
					}
				}
			})
		}
		// GitHub is away: nobody knows, and that is not taken for an answer.
		h := start(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		if _, found, err := h.Probe(t.Context(), upstream.Call{Tool: c.tool, Args: json.RawMessage(`{"owner":"acme","repo":"shop",` + c.args + `}`), Effect: "call_1"}); err == nil || found {
			t.Errorf("%s: GitHub is away: %v, %v", name, found, err)
		}
	}
	h := start(t, anything)
	list1, err := h.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list1 {
		if (tool.Effect == connection.Probeable) != probed[tool.Name] {
			t.Errorf("%s is %s, and probed here: %v", tool.Name, tool.Effect, probed[tool.Name])
		}
		if tool.Writes != (tool.Effect != connection.Pure) {
			t.Errorf("%s is %s, and writes: %v", tool.Name, tool.Effect, tool.Writes)
		}
	}
	if got, found, err := h.Probe(t.Context(), upstream.Call{Tool: "add_issue_comment", Args: json.RawMessage(`{}`)}); err != nil || found {
		t.Errorf("arguments that were never sent: %s, %v, %v", got.Content, found, err)
	}
}

// A failure is ambiguous only when the request with the effect was on its way, and not while the tool still looked.
func TestAmbiguousOnlyAfterTheEffectWasSent(t *testing.T) {
	for _, c := range []struct {
		tool, args string
		effect     string // the request that has it
	}{
		{"push_files", `"branch":"main","message":"m","files":[{"path":"a","content":"x"}]`, "PATCH /repos/acme/shop/git/refs/heads/main"},
		{"create_branch", `"branch":"topic"`, "POST /repos/acme/shop/git/refs"},
		{"delete_file", `"path":"a","message":"m","branch":"main"`, "DELETE /repos/acme/shop/contents/a"},
		{"pull_request_review_write", `"method":"submit_pending","pullNumber":7,"event":"COMMENT","body":"b"`, "POST /repos/acme/shop/pulls/7/reviews/3/events"},
	} {
		h := start(t, anything)
		args := `{"owner":"acme","repo":"shop",` + c.args + `}`
		got, err := h.do(t, c.tool, args)
		var steps []string
		for _, line := range h.requests() {
			method, rest, _ := strings.Cut(line, " ")
			path, _, _ := strings.Cut(rest, " ")
			path, _, _ = strings.Cut(path, "?")
			steps = append(steps, method+" "+path)
		}
		if err != nil || got.ToolError || !slices.Contains(steps, c.effect) {
			t.Fatalf("%s: %s, %v, %v", c.tool, got.Content, err, steps)
		}
		for _, broken := range steps {
			h.says(func(w http.ResponseWriter, r *http.Request) {
				if r.Method+" "+r.URL.Path == broken {
					panic(http.ErrAbortHandler)
				}
				anything(w, r)
			})
			if _, err := h.do(t, c.tool, args); err == nil || upstream.Ambiguous(err) != (broken == c.effect) {
				t.Errorf("%s, cut at %s: %v, ambiguous %v", c.tool, broken, err, upstream.Ambiguous(err))
			}
		}
	}
}
