package github_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

const (
	sha1 = "7fd1a60b01f91b314f59955a4e4d4e80d8edf11d"
	sha2 = "553c2077f0edc3d5dc5d17262f6aa498e69d6f8e"
)

// table answers by method and path, and fails the test for any other.
func table(t *testing.T, answers map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Method + " " + r.URL.EscapedPath()
		answer, ok := answers[key]
		if !ok {
			t.Errorf("asked %s", key)
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"Not Found"}`)
			return
		}
		status := http.StatusOK
		if head, rest, ok := strings.Cut(answer, " "); ok && len(head) == 3 {
			fmt.Sscan(head, &status)
			answer = rest
		}
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}
}

const (
	aPull   = `{"number":7,"title":"Fix","state":"open","draft":false,"user":{"login":"octocat"},"head":{"ref":"topic","sha":"` + sha1 + `","repo":{"full_name":"acme/shop"}},"base":{"ref":"main"},"body":"b","html_url":"https://x/7","requested_reviewers":[{"login":"hubot"}],"labels":[{"name":"bug"}]}`
	aCommit = `{"sha":"` + sha1 + `","commit":{"message":"Fix","author":{"name":"Octo","date":"2026-01-31T12:00:00Z"}},"author":{"login":"octocat"},"parents":[{"sha":"` + sha2 + `"}],"html_url":"https://x/c","stats":{"additions":1,"deletions":2},"files":[{"filename":"a.go","status":"modified","additions":1,"deletions":2,"patch":"@@ -1 +1 @@"}]}`
)

// What each tool makes of answers in GitHub's own shapes.
func TestTools(t *testing.T) {
	for name, c := range map[string]struct {
		tool, args string
		answers    map[string]string
		want       string // a part of the result
	}{
		"who": {"get_me", `{}`, map[string]string{"GET /user": `{"login":"octocat","id":1,"type":"User"}`}, `{"login":"octocat","id":1,"type":"User"}`},
		"a file": {"get_file_contents", `{"path":"/src/a b.txt","ref":"topic/x"}`, map[string]string{"GET /repos/acme/shop/contents/src/a%20b.txt": `{"type":"file","path":"src/a b.txt","sha":"` + sha1 + `","size":5,"encoding":"base64","content":"aGVs\nbG8="}`},
			`"sha":"` + sha1 + `","size":5,"text":"hello","truncated":false`},
		"a file with two dots": {"get_file_contents", `{"path":"a..b"}`, map[string]string{"GET /repos/acme/shop/contents/a..b": `{"type":"file","encoding":"base64","content":"aGk="}`}, `"text":"hi"`},
		"a file with a hash":   {"get_file_contents", `{"path":"c#/a?.txt"}`, map[string]string{"GET /repos/acme/shop/contents/c%23/a%3F.txt": `{"type":"file","encoding":"base64","content":"aGk="}`}, `"text":"hi"`},
		"a binary file":        {"get_file_contents", `{"path":"x"}`, map[string]string{"GET /repos/acme/shop/contents/x": `{"type":"file","encoding":"base64","content":"/wA="}`}, `"base64":"/wA="`},
		"a file too large":     {"get_file_contents", `{"path":"x"}`, map[string]string{"GET /repos/acme/shop/contents/x": `{"type":"file","encoding":"none","content":"","size":3000000}`}, `"truncated":true,"note":"GitHub gives no content`},
		"the root":             {"get_file_contents", `{"path":"/"}`, map[string]string{"GET /repos/acme/shop/contents/": `[{"type":"dir","path":"src","sha":"` + sha1 + `"}]`}, `"items":[{"path":"src","type":"dir"`},
		"a tree": {"get_repository_tree", `{"recursive":"true","path_filter":"src"}`, map[string]string{"GET /repos/acme/shop/git/trees/HEAD": `{"tree":[{"path":"src/a","type":"blob","sha":"` + sha1 + `","size":1},{"path":"b","type":"blob"}],"truncated":true}`},
			`{"items":[{"path":"src/a","type":"blob","sha":"` + sha1 + `","size":1}],"total_count":1,"truncated":true,"note":"the tree is too large`},
		"a tree of a branch": {"get_repository_tree", `{"tree_sha":"topic/x"}`, map[string]string{"GET /repos/acme/shop/git/trees/topic%2Fx": `{"tree":[]}`}, `"items":[]`},
		"commits":            {"list_commits", `{"sha":"main"}`, map[string]string{"GET /repos/acme/shop/commits": "[" + aCommit + "]"}, `"author":"octocat","date":"2026-01-31T12:00:00Z"`},
		"a commit":           {"get_commit", `{"sha":"topic/x","detail":"full_patch"}`, map[string]string{"GET /repos/acme/shop/commits/topic/x": aCommit}, `"patch":"@@ -1 +1 @@"`},
		"a commit's message": {"get_commit", `{"sha":"` + sha1 + `","detail":"none"}`, map[string]string{"GET /repos/acme/shop/commits/" + sha1: aCommit}, `"parents":["` + sha2 + `"],"url":"https://x/c"}`},
		"branches":           {"list_branches", `{}`, map[string]string{"GET /repos/acme/shop/branches": `[{"name":"main","commit":{"sha":"` + sha1 + `"},"protected":true}]`}, `{"name":"main","sha":"` + sha1 + `","protected":true}`},
		"releases":           {"list_releases", `{}`, map[string]string{"GET /repos/acme/shop/releases": `[{"tag_name":"v1","name":"One","body":"b"}]`}, `"tag":"v1"`},
		"found code": {"search_code", `{"query":"func main"}`, map[string]string{"GET /search/code": `{"total_count":2,"items":[{"path":"a.go","sha":"` + sha1 + `","repository":{"full_name":"Acme/Shop"},"text_matches":[{"fragment":"func main()"}]},{"path":"b.go","repository":{"full_name":"evil/secret"}}]}`},
			`"fragments":["func main()"],"url":""}],"truncated":true,"note":"some results lie outside`},
		"found repositories": {"search_repositories", `{"query":"shop"}`, map[string]string{"GET /search/repositories": `{"total_count":1,"items":[{"full_name":"a/b","private":false,"stargazers_count":3},{"full_name":"a/c","private":true}]}`}, `{"items":[{"name":"a/b"`},
		"found issues":       {"search_issues", `{"query":"crash"}`, map[string]string{"GET /search/issues": `{"total_count":1,"items":[{"number":7,"repository_url":"https://api/repos/acme/shop"}]}`}, `"total_count":1,"truncated":false`},
		"found elsewhere":    {"search_pull_requests", `{"query":"crash"}`, map[string]string{"GET /search/issues": `{"total_count":9,"items":[{"number":7,"repository_url":"https://api/repos/evil/acme/shop2"}]}`}, `{"items":[],"truncated":true,"note":"some results lie outside`},
		"an issue":           {"issue_read", `{"method":"get","issue_number":"7"}`, map[string]string{"GET /repos/acme/shop/issues/7": `{"number":7,"title":"T","body":"b <!-- execwarden:call_9 -->","labels":[{"name":"bug"}]}`}, `"labels":["bug"],"comments":0,"body":"b"`},
		"labels":             {"issue_read", `{"method":"get_labels","issue_number":7}`, map[string]string{"GET /repos/acme/shop/issues/7/labels": `[{"name":"bug"}]`}, `{"items":["bug"],"truncated":false}`},
		"a parent":           {"issue_read", `{"method":"get_parent","issue_number":7}`, map[string]string{"GET /repos/acme/shop/issues/7/parent": `{"number":1,"repository_url":"https://api/repos/acme/shop"}`}, `"number":1`},
		"a parent elsewhere": {"issue_read", `{"method":"get_parent","issue_number":7}`, map[string]string{"GET /repos/acme/shop/issues/7/parent": `{"number":1,"title":"secret","repository_url":"https://api/repos/evil/secret"}`}, `{"error":"the parent is in another repository`},
		"sub-issues": {"issue_read", `{"method":"get_sub_issues","issue_number":7}`, map[string]string{"GET /repos/acme/shop/issues/7/sub_issues": `[{"number":1,"repository_url":"https://api/repos/acme/shop"},{"number":2,"title":"secret","repository_url":"https://api/repos/evil/secret"}]`},
			`"note":"sub-issues in other repositories are left out"`},
		"issues without pull requests": {"list_issues", `{"state":"all","labels":"bug"}`, map[string]string{"GET /repos/acme/shop/issues": `[{"number":1},{"number":2,"pull_request":{"url":"u"}}]`}, `{"items":[{"number":1,`},
		"a pull request":               {"pull_request_read", `{"method":"get","pullNumber":7}`, map[string]string{"GET /repos/acme/shop/pulls/7": aPull}, `"head":"topic","head_sha":"` + sha1 + `","head_repo":"acme/shop","base":"main","labels":["bug"],"requested_reviewers":["hubot"]`},
		"a diff":                       {"pull_request_read", `{"method":"get_diff","pullNumber":7}`, map[string]string{"GET /repos/acme/shop/pulls/7": "diff --git <x>"}, `{"diff":"diff --git <x>","bytes":14,"truncated":false}`},
		"a status":                     {"pull_request_read", `{"method":"get_status","pullNumber":7}`, map[string]string{"GET /repos/acme/shop/pulls/7": aPull, "GET /repos/acme/shop/commits/" + sha1 + "/status": `{"state":"success","statuses":[{"context":"ci","state":"success"}]}`}, `"state":"success","statuses":{"items":[{"context":"ci"`},
		"check runs":                   {"pull_request_read", `{"method":"get_check_runs","pullNumber":7}`, map[string]string{"GET /repos/acme/shop/pulls/7": aPull, "GET /repos/acme/shop/commits/" + sha1 + "/check-runs": `{"total_count":1,"check_runs":[{"id":1,"name":"build","status":"completed","conclusion":"failure"}]}`}, `"conclusion":"failure"}],"total_count":1`},
		"a head that is a path":        {"pull_request_read", `{"method":"get_status","pullNumber":7}`, map[string]string{"GET /repos/acme/shop/pulls/7": `{"number":7,"head":{"sha":"../../x"}}`}, `upstream_error`},
		"review threads": {"pull_request_read", `{"method":"get_review_comments","pullNumber":7}`, map[string]string{"POST /graphql": `{"data":{"repository":{"pullRequest":{"reviewThreads":{"totalCount":1,"pageInfo":{"hasNextPage":true,"endCursor":"abc"},"nodes":[{"id":"PRRT_x","isResolved":true,"path":"a.go","line":3,"comments":{"totalCount":1,"nodes":[{"databaseId":5,"author":{"login":"o"},"body":"b","url":"u"}]}}]}}}}}`},
			`{"items":[{"thread":"PRRT_x","resolved":true,"path":"a.go","line":3,"total_comments":1,"comments":[{"id":5,"author":"o","body":"b","url":"u"}]}],"total_count":1,"next_after":"abc","truncated":true}`},
		"pull requests": {"list_pull_requests", `{"head":"topic"}`, map[string]string{"GET /repos/acme/shop/pulls": "[" + aPull + "]"}, `"number":7`},
		"workflows":     {"actions_list", `{"method":"list_workflows"}`, map[string]string{"GET /repos/acme/shop/actions/workflows": `{"total_count":1,"workflows":[{"id":1,"name":"CI","path":".github/workflows/ci.yml","state":"active"}]}`}, `"name":"CI"`},
		"runs":          {"actions_list", `{"method":"list_workflow_runs","resource_id":"ci.yml"}`, map[string]string{"GET /repos/acme/shop/actions/workflows/ci.yml/runs": `{"total_count":1,"workflow_runs":[{"id":9,"name":"CI","status":"completed","conclusion":"failure"}]}`}, `"id":9`},
		"jobs":          {"actions_list", `{"method":"list_workflow_jobs","resource_id":9}`, map[string]string{"GET /repos/acme/shop/actions/runs/9/jobs": `{"total_count":1,"jobs":[{"id":8,"name":"build","steps":[{"name":"test","conclusion":"failure"}]}]}`}, `"failed_steps":["test"]`},
		"a job":         {"actions_get", `{"method":"get_workflow_job","resource_id":"8"}`, map[string]string{"GET /repos/acme/shop/actions/jobs/8": `{"id":8,"name":"build"}`}, `"name":"build"`},
		"code alerts": {"list_code_scanning_alerts", `{"severity":"high"}`, map[string]string{"GET /repos/acme/shop/code-scanning/alerts": `[{"number":1,"state":"open","rule":{"id":"go/x","security_severity_level":"high"},"tool":{"name":"CodeQL"},"most_recent_instance":{"ref":"refs/heads/main","message":{"text":"bad"},"location":{"path":"a.go","start_line":3}}}]`},
			`"rule":"go/x","severity":"high","tool":"CodeQL","message":"bad","path":"a.go","line":3`},
		"dependency alerts": {"list_dependabot_alerts", `{"state":"open"}`, map[string]string{"GET /repos/acme/shop/dependabot/alerts": `[{"number":1,"state":"open","dependency":{"package":{"name":"x","ecosystem":"go"},"manifest_path":"go.mod"},"security_advisory":{"ghsa_id":"GHSA-1","severity":"high","summary":"s"},"security_vulnerability":{"vulnerable_version_range":"< 2","first_patched_version":{"identifier":"2"}}}]`},
			`"package":"x","ecosystem":"go","manifest":"go.mod","severity":"high","ghsa":"GHSA-1","summary":"s","vulnerable":"< 2","patched":"2"`},
		"an update":          {"issue_write", `{"method":"update","issue_number":7,"state":"closed"}`, map[string]string{"PATCH /repos/acme/shop/issues/7": `{"number":7,"state":"closed"}`}, `"state":"closed"`},
		"a branch":           {"create_branch", `{"branch":"topic/x"}`, map[string]string{"GET /repos/acme/shop": `{"default_branch":"main"}`, "GET /repos/acme/shop/git/ref/heads/main": `{"object":{"sha":"` + sha1 + `"}}`, "POST /repos/acme/shop/git/refs": `{"object":{"sha":"` + sha1 + `"}}`}, `{"branch":"topic/x","sha":"` + sha1 + `"}`},
		"a file without sha": {"create_or_update_file", `{"path":"a.txt","content":"x","message":"m","branch":"main"}`, map[string]string{"PUT /repos/acme/shop/contents/a.txt": `422 {"message":"Invalid request.\n\n\"sha\" wasn't supplied."}`}, `give its blob sha as sha`},
		"a file that moved":  {"create_or_update_file", `{"path":"a.txt","content":"x","message":"m","branch":"main","sha":"` + sha1 + `"}`, map[string]string{"PUT /repos/acme/shop/contents/a.txt": `409 {"message":"a.txt does not match ` + sha1 + `"}`}, `read it again`},
		"a push that lost": {"push_files", `{"branch":"main","message":"m","files":[{"path":"a","content":"x"}]}`, map[string]string{"GET /repos/acme/shop/git/ref/heads/main": `{"object":{"sha":"` + sha1 + `"}}`, "GET /repos/acme/shop/git/commits/" + sha1: `{"sha":"` + sha1 + `","tree":{"sha":"` + sha2 + `"}}`,
			"POST /repos/acme/shop/git/trees": `201 {"sha":"` + sha2 + `"}`, "POST /repos/acme/shop/git/commits": `201 {"sha":"` + sha2 + `"}`, "PATCH /repos/acme/shop/git/refs/heads/main": `422 {"message":"Update is not a fast forward"}`}, `if the branch was pushed to meanwhile`},
		"a deletion by path":       {"delete_file", `{"path":"a","message":"m","branch":"main"}`, map[string]string{"GET /repos/acme/shop/contents/a": `{"type":"file","sha":"` + sha1 + `"}`, "DELETE /repos/acme/shop/contents/a": `{"commit":{"sha":"` + sha2 + `"}}`}, `{"done":"deleted","sha":"` + sha2 + `"}`},
		"a directory is kept":      {"delete_file", `{"path":"a","message":"m","branch":"main"}`, map[string]string{"GET /repos/acme/shop/contents/a": `[{"type":"file"}]`}, `the path is a directory`},
		"a merge":                  {"merge_pull_request", `{"pullNumber":7,"expected_head_sha":"` + sha1 + `"}`, map[string]string{"PUT /repos/acme/shop/pulls/7/merge": `{"merged":true,"sha":"` + sha2 + `"}`}, `{"done":"merged","sha":"` + sha2 + `"}`},
		"a merge of another head":  {"merge_pull_request", `{"pullNumber":7,"sha":"` + sha1 + `"}`, map[string]string{"PUT /repos/acme/shop/pulls/7/merge": `409 {"message":"Head branch was modified"}`}, `the head is not at expectedHeadSha any more`},
		"a branch brought up":      {"update_pull_request_branch", `{"pullNumber":7}`, map[string]string{"PUT /repos/acme/shop/pulls/7/update-branch": `202 {"message":"Updating"}`}, `GitHub is updating the branch`},
		"reviewers not asked":      {"update_pull_request", `{"pullNumber":7,"title":"T","reviewers":["nobody"]}`, map[string]string{"PATCH /repos/acme/shop/pulls/7": aPull, "POST /repos/acme/shop/pulls/7/requested_reviewers": `422 {"message":"not a collaborator"}`}, `was changed, but the reviewers were not asked`},
		"a run started":            {"actions_run_trigger", `{"method":"run_workflow","workflow_id":"ci.yml","ref":"main","inputs":{"n":1,"b":true}}`, map[string]string{"POST /repos/acme/shop/actions/workflows/ci.yml/dispatches": `204 `}, `GitHub will start the workflow`},
		"a run cancelled":          {"actions_run_trigger", `{"method":"cancel_workflow_run","run_id":9}`, map[string]string{"POST /repos/acme/shop/actions/runs/9/cancel": `202 {}`}, `GitHub will cancel`},
		"no pending review":        {"pull_request_review_write", `{"method":"submit_pending","pullNumber":7,"event":"APPROVE"}`, map[string]string{"GET /repos/acme/shop/pulls/7/reviews": `[{"id":1,"state":"APPROVED"}]`}, `there is no pending review`},
		"a thread of another pull": {"pull_request_review_write", `{"method":"resolve_thread","pullNumber":7,"threadId":"PRRT_x"}`, map[string]string{"POST /graphql": `{"data":{"node":{"id":"PRRT_x","pullRequest":{"number":7,"repository":{"nameWithOwner":"evil/secret"}}}}}`}, `there is no such thread`},
		"GraphQL says no":          {"pull_request_review_write", `{"method":"resolve_thread","pullNumber":7,"threadId":"PRRT_x"}`, map[string]string{"POST /graphql": `{"errors":[{"type":"FORBIDDEN","message":"Resource not accessible"}]}`}, `{"error":"GitHub refused: Resource not accessible"}`},
		"a line not in the diff":   {"add_comment_to_pending_review", `{"pullNumber":7,"path":"a","line":3,"body":"b"}`, map[string]string{"GET /repos/acme/shop/pulls/7/reviews": `[{"id":1,"node_id":"PRR_x","state":"PENDING"}]`, "POST /graphql": `{"data":{"addPullRequestReviewThread":{"thread":null}}}`}, `is the line part of the diff`},
		"a renamed repository":     {"list_branches", `{}`, map[string]string{"GET /repos/acme/shop/branches": `301 {"message":"Moved Permanently"}`}, `use its new name`},
	} {
		t.Run(name, func(t *testing.T) {
			args := object{}
			if err := json.Unmarshal([]byte(c.args), &args); err != nil {
				t.Fatal(err)
			}
			if c.tool != "get_me" && c.tool != "search_repositories" {
				args["owner"], args["repo"] = json.RawMessage(`"acme"`), json.RawMessage(`"shop"`)
			}
			raw, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			h := start(t, table(t, c.answers))
			got, err := h.do(t, c.tool, string(raw))
			if text := string(got.Content) + fmt.Sprint(err); !strings.Contains(text, c.want) {
				t.Errorf("%s, want %s", text, c.want)
			}
			if upstream.Ambiguous(err) {
				t.Error("ambiguous")
			}
		})
	}
}

// A list says that there is more, and how to get it (github-mcp-server#2347).
func testPages(t *testing.T) {
	h := start(t, nil)
	h.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", fmt.Sprintf(`<%s/repos/acme/shop/issues?page=3>; rel="next"`, h.URL))
		fmt.Fprint(w, `[{"number":1}]`)
	}
	got, err := h.do(t, "list_issues", `{"owner":"acme","repo":"shop","page":2,"per_page":"50"}`)
	if err != nil || !strings.Contains(string(got.Content), `"next_page":3,"truncated":true`) {
		t.Errorf("%s, %v", got.Content, err)
	}
	if asked := h.requests()[0]; !strings.Contains(asked, "page=2") || !strings.Contains(asked, "per_page=50") {
		t.Errorf("asked %s", asked)
	}
	for _, bad := range []string{`{"owner":"acme","repo":"shop","perPage":101}`, `{"owner":"acme","repo":"shop","perPage":0}`} {
		if _, err := h.do(t, "list_issues", bad); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// However much GitHub says, an answer stays small, and says what is missing.
func testAnswersStaySmall(t *testing.T) {
	long := strings.Repeat("ä<ö\n", 12_000)
	quoted := func(text string) string {
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	thing := func(text string) string {
		return `{"number":1,"sha":"x","filename":"f","patch":` + text + `,"body":` + text + `,"title":"t","commit":{"message":` + text + `}}`
	}
	one := thing(quoted(long))
	many := "[" + strings.TrimSuffix(strings.Repeat(thing(quoted(long[:6000]))+",", 30), ",") + "]"
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.Header.Get("Accept"), "diff"):
			_, _ = io.WriteString(w, long)
		case strings.Contains(r.URL.Path, "commits/"):
			fmt.Fprint(w, `{"sha":"x","files":`+many+`}`)
		case strings.HasSuffix(r.URL.Path, "/7"):
			_, _ = io.WriteString(w, one)
		default:
			_, _ = io.WriteString(w, many)
		}
	})
	for _, c := range []struct{ tool, args string }{
		{"issue_read", `"method":"get","issue_number":7`}, {"issue_read", `"method":"get_comments","issue_number":7`}, {"list_issues", `"perPage":100`}, {"pull_request_read", `"method":"get_diff","pullNumber":7`},
		{"pull_request_read", `"method":"get_files","pullNumber":7`}, {"get_commit", `"sha":"main","detail":"full_patch"`}, {"list_commits", `"perPage":100`}, {"list_pull_requests", `"perPage":100`}, {"list_releases", `"perPage":100`},
	} {
		got, err := h.do(t, c.tool, `{"owner":"acme","repo":"shop",`+c.args+`}`)
		if err != nil || got.ToolError || len(got.Content) > 100<<10 || !json.Valid(got.Content) {
			t.Errorf("%s %s: %d bytes, %v", c.tool, c.args, len(got.Content), err)
		}
		if text := string(got.Content); !strings.Contains(text, `"truncated":true`) && !strings.Contains(text, "[cut: ") || strings.Contains(text, "\ufffd") {
			t.Errorf("%s %s: nothing says that something is missing, or a character was cut in two", c.tool, c.args)
		}
	}
}

// Text is taken for a number (github-mcp-server#2044), and a list may be one value.
func testCoercion(t *testing.T) {
	h := start(t, anything)
	for _, args := range []string{`"issue_number":"7"`, `"issue_number":7`, `"number":" 7 "`} {
		if _, err := h.do(t, "issue_read", `{"method":"get","owner":"acme","repo":"shop",`+args+`}`); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := h.do(t, "issue_write", `{"method":"create","owner":"acme","repo":"shop","title":"t","labels":"bug","assignees":null}`); err != nil {
		t.Error(err)
	}
}

// What is asked of GitHub is what the model asked for, and no more.
func TestBodies(t *testing.T) {
	var bodies []string
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if len(raw) > 0 {
			bodies = append(bodies, r.Method+" "+strings.TrimSpace(string(raw)))
		}
		anything(w, r)
	})
	for _, c := range []struct {
		tool, args string
		want       []string
	}{
		{"issue_write", `"method":"update","issue_number":7,"labels":[]`, []string{`PATCH {"labels":[]}`}},
		{"issue_write", `"method":"create","title":"T"`, []string{`POST {"title":"T","body":"\n\n<!-- execwarden:call_1 -->"}`}},
		{"merge_pull_request", `"pullNumber":7,"merge_method":"squash","expectedHeadSha":"` + sha1 + `"`, []string{`PUT {"merge_method":"squash","sha":"` + sha1 + `"}`}},
		{"actions_run_trigger", `"method":"run_workflow","workflow_id":12,"ref":"main","inputs":{"n":1}`, []string{`POST {"ref":"main","inputs":{"n":"1"}}`}},
		{"push_files", `"branch":"main","message":"m","files":[{"path":"a","content":"x"}]`, []string{
			`POST {"base_tree":"0123456789abcdef0123456789abcdef01234567","tree":[{"path":"a","mode":"100644","type":"blob","content":"x"}]}`,
			`POST {"message":"m","tree":"0123456789abcdef0123456789abcdef01234567","parents":["0123456789abcdef0123456789abcdef01234567"]}`,
			`PATCH {"sha":"0123456789abcdef0123456789abcdef01234567","force":false}`}},
		{"pull_request_review_write", `"method":"create","pullNumber":7`, []string{`POST {"body":"<!-- execwarden:call_1 -->"}`}},
	} {
		bodies = nil
		if got, err := h.do(t, c.tool, `{"owner":"acme","repo":"shop",`+c.args+`}`); err != nil || got.ToolError {
			t.Errorf("%s: %s, %v", c.tool, got.Content, err)
		}
		if !slices.Equal(bodies, c.want) {
			t.Errorf("%s sent %q", c.tool, bodies)
		}
	}
}

// What a person approves, or a grant lets through, is the merge of what was looked at, and of nothing pushed since.
func testMergeNamesItsHead(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("GitHub is asked to %s %s", r.Method, r.URL)
		anything(w, r)
	})
	for _, args := range []string{``, `,"expectedHeadSha":""`, `,"expectedHeadSha":"0123456"`, `,"expectedHeadSha":"main"`} {
		if got, err := h.do(t, "merge_pull_request", `{"owner":"acme","repo":"shop","pullNumber":7`+args+`}`); err == nil || !strings.Contains(err.Error(), "expectedHeadSha") {
			t.Errorf("%s: %s, %v", args, got.Content, err)
		}
	}
}
