package github_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/services/toolbroker/internal/github"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// object is an argument object while it is changed.
type object map[string]json.RawMessage

const (
	sha40 = `"0123456789abcdef0123456789abcdef01234567"`
	aTime = `"2026-01-31T12:00:00Z"`
)

// valid are values that every tool takes.
var valid = map[string]string{
	"owner": `"acme"`, "repo": `"shop"`, "issue_number": `7`, "pullNumber": `7`, "page": `1`, "perPage": `10`, "after": `"Y3Vyc29y"`, "body": `"text"`, "title": `"text"`,
	"labels": `["bug"]`, "assignees": `["bot"]`, "assignee": `"bot"`, "reviewers": `["bot"]`, "milestone": `1`, "path": `"src/main.go"`, "path_filter": `"src"`, "ref": `"main"`,
	"branch": `"topic/x"`, "base": `"main"`, "head": `"topic"`, "from_branch": `"main"`, "expectedHeadSha": sha40, "sha": sha40, "commitID": sha40, "message": `"text"`,
	"content": `"text"`, "files": `[{"path":"a/b.txt","content":"text"}]`, "query": `"words"`, "since": aTime, "until": aTime, "author": `"bot"`, "actor": `"bot"`,
	"event": `"push"`, "status": `"completed"`, "tree_sha": `"main"`, "recursive": `true`, "draft": `true`, "maintainer_can_modify": `true`, "commit_title": `"text"`,
	"commit_message": `"text"`, "threadId": `"PRRT_abcd"`, "commentId": `5`, "line": `3`, "startLine": `1`, "resource_id": `"12"`, "workflow_id": `"ci.yml"`, "inputs": `{"a":"b"}`,
	"run_id": `9`, "job_id": `8`, "failed_only": `true`, "return_content": `true`, "tail_lines": `10`, "tool_name": `"CodeQL"`,
}

type property struct {
	Type string   `json:"type"`
	Enum []string `json:"enum"`
}

type offered struct {
	Name       string
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
	Additional *bool               `json:"additionalProperties"`
}

// offer reads what the connection offers.
func offer(t *testing.T, p *github.Provider) (out []offered) {
	t.Helper()
	list, err := p.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		o := offered{Name: one.Name}
		if err := json.Unmarshal(one.Schema, &o); err != nil {
			t.Fatalf("%s: %v", one.Name, err)
		}
		out = append(out, o)
	}
	return out
}

// calls are arguments of a tool that it takes, one for each of its methods, with everything that it may be given.
func (o offered) calls() (out []object) {
	methods := o.Properties["method"].Enum
	if methods == nil {
		methods = []string{""}
	}
	for _, m := range methods {
		args := object{}
		for name, p := range o.Properties {
			switch {
			case name == "method":
				args[name] = json.RawMessage(`"` + m + `"`)
			case p.Enum != nil:
				args[name] = json.RawMessage(`"` + p.Enum[0] + `"`)
			default:
				args[name] = json.RawMessage(valid[name])
			}
		}
		switch {
		case o.Name == "get_job_logs":
			delete(args, "run_id")
		case m == "create" && o.Name == "issue_write":
			delete(args, "issue_number")
			delete(args, "state")
			delete(args, "state_reason")
		}
		out = append(out, args)
	}
	return out
}

// anything is a GitHub that has an answer of the right shape for whatever it is asked, so that calls go as far as they can.
func anything(w http.ResponseWriter, r *http.Request) {
	const sha = "0123456789abcdef0123456789abcdef01234567"
	path := r.URL.Path
	last := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case last == "logs" && r.Method == http.MethodGet:
		w.Header().Set("Location", "https://logs.example/x?sig=secret")
		w.WriteHeader(http.StatusFound)
	case r.URL.Path == "/graphql":
		fmt.Fprint(w, `{"data":{"node":{"id":"PRRT_abcd","pullRequest":{"number":7,"repository":{"nameWithOwner":"acme/shop"}}},"done":{"thread":{"id":"PRRT_abcd"}},`+
			`"addPullRequestReviewThread":{"thread":{"id":"t"}},"repository":{"pullRequest":{"reviewThreads":{}}}}}`)
	case strings.HasPrefix(path, "/search/"):
		fmt.Fprint(w, `{"total_count":0,"items":[]}`)
	case last == "reviews" && r.Method == http.MethodGet:
		fmt.Fprint(w, `[{"id":3,"node_id":"PRR_x","state":"PENDING","body":"b"}]`)
	case strings.Contains(path, "/contents") && r.Method != http.MethodGet:
		fmt.Fprint(w, `{"content":{"sha":"`+sha+`"},"commit":{"sha":"`+sha+`"}}`)
	case strings.Contains(path, "/git/commits"):
		fmt.Fprint(w, `{"sha":"`+sha+`","tree":{"sha":"`+sha+`"}}`)
	case strings.Contains(path, "/contents"):
		fmt.Fprint(w, `{"type":"file","sha":"`+sha+`","path":"a","content":"","encoding":"base64","commit":{"sha":"`+sha+`"}}`)
	case r.Method == http.MethodGet && slices.Contains([]string{"issues", "pulls", "comments", "labels", "sub_issues", "files", "commits", "branches", "releases", "alerts"}, last):
		fmt.Fprint(w, `[]`)
	case strings.HasSuffix(path, "/merge"):
		fmt.Fprint(w, `{"merged":true,"sha":"`+sha+`"}`)
	default:
		fmt.Fprint(w, `{"id":42,"number":7,"sha":"`+sha+`","state":"open","default_branch":"main","object":{"sha":"`+sha+`"},"tree":[],"head":{"sha":"`+sha+`"},"repository_url":"https://x/repos/acme/shop"}`)
	}
}

// repository is what a grant is compared with.
func (o object) repository() string {
	var owner, name string
	_ = json.Unmarshal(o["owner"], &owner) // "" is none
	_ = json.Unmarshal(o["repo"], &name)
	return owner + "/" + name
}

// inside says whether a request is one that a call about a repository may make.
func inside(line, repo string) bool {
	_, target, _ := strings.Cut(line, " ")
	target, _, _ = strings.Cut(target, " ")
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}
	path := u.EscapedPath()
	for range 4 {
		for segment := range strings.SplitSeq(strings.ReplaceAll(path, `\`, "/"), "/") {
			if segment == ".." || segment == "." {
				return false
			}
		}
		path, _ = url.PathUnescape(path)
	}
	q := u.Query()["q"]
	switch p := u.EscapedPath(); {
	case p == "/repos/"+repo || strings.HasPrefix(p, "/repos/"+repo+"/"), p == "/graphql", p == "/user":
		return true
	case p == "/search/code" || p == "/search/issues":
		rest, ok := strings.CutPrefix(q[0], "repo:"+repo)
		return ok && len(q) == 1 && (rest == "" || rest[0] == ' ') && !strings.Contains(strings.ToLower(rest), "repo:") && strings.Count(rest, `"`)%2 == 0
	case p == "/search/repositories":
		return len(q) == 1 && strings.HasPrefix(q[0], "is:public ")
	}
	return false
}

var hostile = []string{
	"../", "..", "../../evil/secret", "x/../../../evil/secret", "%2e%2e", "%2e%2e%2f%2e%2e%2fevil", "%252e%252e%252f", `..\..\evil`, "#", "x#y", "?", "x?y=z", "/", "//", "//evil.example/x",
	`\`, "x\x00y", "x\r\nHost: evil.example", "x\ny", "@{-1}", "-rf", "x;y", "x y", "http://evil.example/", "evil.example:443", ".git/config", ".", "a//b", "x.lock", "refs/../x",
	"ok repo:evil/secret", "ok REPO:evil/secret", "ok org:evil", "ok -user:me", `ok" repo:evil/secret`, `"ok repo:evil/secret`, "ok OR x", "(ok)", "ok | x", "ok is:private", "x\u202ey", "\u00e9", strings.Repeat("a", 2000),
}

// Whatever stands in whatever argument of whatever tool: no request leaves the repository that the grant was compared
// with (go-github#4150), none carries a query that looks elsewhere, and nothing that is refused is sent.
func testNothingLeavesTheRepository(t *testing.T) {
	h := start(t, anything)
	call := func(tool string, args object, about string) {
		t.Helper()
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		before := len(h.requests())
		got, err := h.Call(t.Context(), upstream.Call{Call: "call_1", Tool: tool, Args: raw, Effect: "call_1"})
		for _, line := range h.requests()[before:] {
			if !inside(line, args.repository()) {
				t.Errorf("%s with %s asked %s", tool, about, line)
			}
		}
		if strings.Contains(string(got.Content)+fmt.Sprint(err), canary) || strings.Contains(string(got.Content)+fmt.Sprint(err), "sig=secret") {
			t.Errorf("%s with %s tells a secret: %s, %v", tool, about, got.Content, err)
		}
	}
	for _, tool := range offer(t, h.Provider) {
		for _, args := range tool.calls() {
			for name, p := range tool.Properties {
				for _, value := range hostile {
					changed := maps.Clone(args)
					text, err := json.Marshal(value)
					if err != nil {
						t.Fatal(err)
					}
					changed[name] = text
					switch {
					case name == "files":
						changed[name] = json.RawMessage(fmt.Sprintf(`[{"path":%s,"content":"x"}]`, text))
					case p.Type == "array":
						changed[name] = json.RawMessage(fmt.Sprintf(`[%s]`, text))
					case p.Type == "object":
						changed[name] = json.RawMessage(fmt.Sprintf(`{%s:%s}`, text, text))
					}
					call(tool.Name, changed, fmt.Sprintf("%s %.40q", name, value))
				}
			}
		}
	}
}

// Each method of each tool works with everything that its schema offers.
func TestEveryToolTakesWhatItOffers(t *testing.T) {
	h := start(t, anything)
	for _, tool := range offer(t, h.Provider) {
		if tool.Additional == nil || *tool.Additional {
			t.Errorf("%s takes unknown arguments", tool.Name)
		}
		for _, args := range tool.calls() {
			raw, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			before := len(h.requests())
			got, err := h.do(t, tool.Name, string(raw))
			if (err != nil || got.ToolError) && tool.Name != "get_job_logs" {
				t.Errorf("%s %s: %s, %v", tool.Name, raw, got.Content, err)
			}
			if len(h.requests()) == before {
				t.Errorf("%s %s asked nothing", tool.Name, raw)
			}
		}
	}
}

// An argument that is not known is refused by name, by every tool (github-mcp-server#364).
func testUnknownArguments(t *testing.T) {
	h := start(t, anything)
	for _, tool := range offer(t, h.Provider) {
		args := maps.Clone(tool.calls()[0])
		args["force_push"] = json.RawMessage(`true`)
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.do(t, tool.Name, string(raw)); err == nil || !strings.Contains(err.Error(), `"force_push"`) {
			t.Errorf("%s: %v", tool.Name, err)
		}
	}
	if n := len(h.requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}
