package host

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/gitkit"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
)

const canary = "ghs_canary_of_git"

// lending is a broker that asks a real git server; what it may do, the broker's own tests are about.
type lending struct {
	server *gitkit.Server
	mu     sync.Mutex
	opened []connector.GitOpen
	refuse error
	cut    cut // of a push
}

// cut says where a push is cut off.
type cut struct {
	body   bool // before all of it was sent
	server bool // the git server does nothing about it
	answer bool // what it answers is lost
	look   bool // and nothing is lent any more
}

func (l *lending) Open(_ context.Context, q connector.GitOpen) (Lent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened = append(l.opened, q)
	if l.refuse != nil {
		return nil, l.refuse
	}
	one := &lentTest{lending: l, open: q, answered: make(chan struct{})}
	if q.Refs {
		one.ask(http.MethodGet, "info/refs?service="+q.Service, nil)
	}
	return one, nil
}

type lentTest struct {
	*lending
	open     connector.GitOpen
	body     bytes.Buffer
	answered chan struct{}
	answer   []byte
	kind     string
	err      error
}

func (l *lentTest) ask(method, path string, body io.Reader) {
	defer close(l.answered)
	req, err := http.NewRequest(method, l.server.URL+"/acme/shop.git/"+path, body)
	if err != nil {
		l.err = err
		return
	}
	req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("x-access-token:"+canary)))
	req.Header.Set("Git-Protocol", l.open.Protocol)
	if body != nil {
		req.Header.Set("Content-Type", "application/x-"+path+"-request")
	}
	if l.open.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		l.err = err
		return
	}
	defer resp.Body.Close()
	l.kind = resp.Header.Get("Content-Type")
	if l.answer, l.err = io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		l.err = problem.New(problem.Upstream, "the server said %d %s", resp.StatusCode, l.answer)
	}
}

func (l *lentTest) Put(_ context.Context, data []byte, last bool) error {
	l.body.Write(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != (cut{}) && bytes.Contains(l.body.Bytes(), []byte("PACK")) {
		if l.cut.look {
			l.refuse = problem.New(problem.Denied, "the grant was revoked")
		}
		if l.cut.body {
			return problem.New(problem.Unavailable, "the broker does not answer")
		}
		if last && !l.cut.server {
			l.ask(http.MethodPost, l.open.Service, &l.body)
		} else if last {
			close(l.answered)
		}
		if last && l.cut.answer {
			l.err = problem.New(problem.Unavailable, "the broker does not answer")
		}
		return nil
	}
	if last {
		l.ask(http.MethodPost, l.open.Service, &l.body)
	}
	return nil
}

func (l *lentTest) Get(context.Context) ([]byte, string, bool, error) {
	<-l.answered
	n := min(len(l.answer), 7000) // in pieces
	piece := l.answer[:n]
	l.answer = l.answer[n:]
	return piece, l.kind, len(l.answer) == 0, l.err
}

func (l *lentTest) Close() {}

// gitTool calls a git tool.
func (d *dock) git(tool string, args any) (machine.Git, connector.Answer) {
	d.t.Helper()
	a := d.Do(d.t.Context(), d.order(tool, args))
	var out machine.Git
	if a.State == connector.Done {
		if err := json.Unmarshal(a.Result, &out); err != nil {
			d.t.Fatal(err)
		}
	}
	return out, a
}

func (d *dock) gitOK(tool string, args any) machine.Git {
	d.t.Helper()
	out, a := d.git(tool, args)
	if a.State != connector.Done || a.ToolError {
		d.t.Fatalf("%s %+v: %s %s %s %s", tool, args, a.State, a.Code, a.Message, a.Result)
	}
	return out
}

func (d *dock) borrows(server *gitkit.Server) *lending {
	l := &lending{server: server}
	d.Borrow(l)
	d.t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return l
}

// A repository is cloned, changed, committed, pushed and fetched again, in a cage without network.
func TestGit(t *testing.T) {
	d := newBare(t, "network: off")
	server := gitkit.Start(t, canary)
	l := d.borrows(server)
	on := map[string]any{"connection": "github", "repo": "acme/shop"}
	with := func(more ...any) map[string]any {
		all := map[string]any{}
		for k, v := range on {
			all[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			all[fmt.Sprint(more[i])] = more[i+1]
		}
		return all
	}
	cloned := d.gitOK("git_clone", with("dir", "src/shop"))
	if cloned.Commit != server.Ref("main") || cloned.Branch != "main" || cloned.Dir != "src/shop" {
		t.Errorf("cloned %+v", cloned)
	}
	volume := filepath.Join(d.cfg.Home, "volumes", "main")
	config, err := os.ReadFile(filepath.Join(volume, "src/shop/.git/config"))
	if err != nil || !strings.Contains(string(config), "url = execwarden://github/acme/shop.git") || strings.Contains(string(config), "127.0.0.1") {
		t.Errorf("the repository's config: %s, %v", config, err)
	}
	if b := d.gitOK("git_branch", machine.GitBranchArgs{Dir: "src/shop", Name: "agent/fix-1", Create: true}); b.Branch != "agent/fix-1" {
		t.Errorf("branch %+v", b)
	}
	d.sh("cd src/shop && printf 'A better shop.\\n' >README.md && printf new >'a file' && mv README.md 'read me' && cp 'read me' README.md && rm 'read me'")
	status := d.gitOK("git_status", machine.GitStatusArgs{Dir: "src/shop"})
	if status.Branch != "agent/fix-1" || len(status.Files) != 2 || status.Files[0].Path != "README.md" || status.Files[0].State != " M" || status.Files[1].Path != "a file" || status.Files[1].State != "??" {
		t.Errorf("status %+v", status)
	}
	diff := d.gitOK("git_diff", machine.GitDiffArgs{Dir: "src/shop"})
	if len(diff.Files) != 1 || diff.Files[0].Added != 1 || diff.Files[0].Removed != 1 || !strings.Contains(diff.Patch, "+A better shop.") {
		t.Errorf("diff %+v", diff)
	}
	made := d.gitOK("git_commit", machine.GitCommitArgs{Dir: "src/shop", Message: "Better", All: true})
	if len(made.Commit) != 40 || made.Branch != "agent/fix-1" {
		t.Errorf("commit %+v", made)
	}
	if again, a := d.git("git_commit", machine.GitCommitArgs{Dir: "src/shop", Message: "Nothing", All: true}); !a.ToolError || again.Stderr == "" {
		t.Errorf("nothing to commit: %+v", again)
	}
	log := d.gitOK("git_log", machine.GitLogArgs{Dir: "src/shop", Max: 1})
	if len(log.Commits) != 1 || log.Commits[0].Commit != made.Commit || log.Commits[0].Subject != "Better" || !log.More {
		t.Errorf("log %+v", log)
	}
	push := with("dir", "src/shop", "branch", "agent/fix-1")
	if p := d.gitOK("git_push", push); p.Pushed != "new" || p.Commit != made.Commit || server.Ref("agent/fix-1") != made.Commit {
		t.Errorf("pushed %+v; the server has %s", p, server.Ref("agent/fix-1"))
	}
	if p := d.gitOK("git_push", push); p.Pushed != "up_to_date" {
		t.Errorf("pushed again %+v", p)
	}
	// Another history is refused by git, and taken with force.
	d.sh("cd src/shop && git -c user.name=a -c user.email=a@example.com commit -q --amend -m Other")
	if p, a := d.git("git_push", push); !a.ToolError || p.Pushed != "rejected" {
		t.Errorf("no fast-forward: %+v", p)
	}
	if p := d.gitOK("git_push", with("dir", "src/shop", "branch", "agent/fix-1", "force", true)); p.Pushed != "forced" || server.Ref("agent/fix-1") != p.Commit {
		t.Errorf("forced %+v", p)
	}
	if f := d.gitOK("git_fetch", with("dir", "src/shop", "branch", "agent/fix-1")); f.Commit != server.Ref("agent/fix-1") {
		t.Errorf("fetched %+v", f)
	}
	if b := d.gitOK("git_branch", machine.GitBranchArgs{Dir: "src/shop"}); len(b.Branches) != 2 {
		t.Errorf("branches %+v", b)
	}
	for _, q := range l.opened {
		if q.Attachment != d.lease.Attachment || q.Epoch != 1 || q.Call == "" {
			t.Errorf("asked %+v", q)
		}
	}
	// What is refused is told in words, and leaves nothing.
	l.refuse = problem.New(problem.Denied, "the grant was revoked")
	if p, a := d.git("git_clone", with("dir", "none")); !a.ToolError || p.Problem != "the grant was revoked" || !strings.Contains(p.Stderr, "the grant was revoked") {
		t.Errorf("refused: %+v", p)
	}
	if _, err := os.Stat(filepath.Join(volume, "none")); err == nil {
		t.Error("a clone that was refused left a directory")
	}
}

// What is no repository, branch, commit or revision is refused before git is told of it.
func TestGitArguments(t *testing.T) {
	d := newBare(t, "network: off")
	l := d.borrows(&gitkit.Server{})
	for _, c := range []struct {
		tool string
		args map[string]any
	}{
		{"git_clone", map[string]any{"connection": "github", "repo": "acme/../other"}},
		{"git_clone", map[string]any{"connection": "github", "repo": "acme/.."}},
		{"git_clone", map[string]any{"connection": "../x", "repo": "acme/shop"}},
		{"git_clone", map[string]any{"connection": "github", "repo": "acme/shop", "branch": "--upload-pack=touch x"}},
		{"git_push", map[string]any{"connection": "github", "repo": "acme/shop", "branch": "a:b"}},
		{"git_push", map[string]any{"connection": "github", "repo": "acme/shop", "branch": "refs/tags/a"}},
		{"git_push", map[string]any{"connection": "github", "repo": "acme/shop", "branch": "a", "commit": "HEAD"}},
		{"git_log", map[string]any{"from": "--output=x"}},
		{"git_diff", map[string]any{"from": "HEAD", "to": "--no-index"}},
		{"git_branch", map[string]any{"name": "-D"}},
		{"git_branch", map[string]any{"name": "a", "create": true, "from": "--orphan"}},
		{"git_commit", map[string]any{"message": "a", "author": "x\nEvil <a@b>"}},
		{"git_status", map[string]any{"dir": "../.."}},
	} {
		if _, a := d.git(c.tool, c.args); a.State == connector.Done && !a.ToolError {
			t.Errorf("%s %v is carried out", c.tool, c.args)
		}
	}
	if len(l.opened) > 0 {
		t.Errorf("the broker was asked %+v", l.opened)
	}
}

// A machine whose policy allows no git, or that has none, says so.
func TestGitMayNotRun(t *testing.T) {
	d := newBare(t, "shell: false\nprograms: [/usr/bin/env]")
	_, a := d.git("git_status", machine.GitStatusArgs{})
	if a.State != connector.Refused || a.Code != string(problem.Denied) || !strings.Contains(a.Message, "the machine's policy, rule programs") {
		t.Errorf("%+v", a)
	}
}

// The port of a call asks for nothing but its repository, whatever a command in the cage asks of it.
func TestGitPortIsOfOneRepository(t *testing.T) {
	d := newBare(t, "network: off")
	server := gitkit.Start(t, canary)
	l := d.borrows(server)
	// A hook of the clone has the port, while the call is there.
	template := "cd src/shop && git config core.hooksPath hooks && mkdir hooks && cat >hooks/pre-push <<'E'\n#!/bin/sh\nexec python3 - \"$2\" >../../tried\nE\n"
	script := `import http.client, os, subprocess, sys
out = subprocess.run(["git", "config", "--get-regexp", "^url\\."], capture_output=True, text=True).stdout
port = int(out.split("127.0.0.1:")[1].split("/")[0])
for method, path in [("GET", "/acme/other.git/info/refs?service=git-upload-pack"), ("GET", "/acme/shop.git/../other.git/info/refs?service=git-upload-pack"),
  ("GET", "/acme/shop.git/%2e%2e/other.git/info/refs"), ("GET", "//acme/shop.git/info/refs"), ("GET", "http://git.example.com/acme/shop.git/info/refs"), ("GET", "/acme/shop.git/HEAD"), ("GET", "/acme/shop.git/objects/info/packs"),
  ("POST", "/acme/shop.git/info/refs"), ("PUT", "/acme/shop.git/git-receive-pack"), ("GET", "/"), ("GET", "/acme/shop/info/refs")]:
    c = http.client.HTTPConnection("127.0.0.1", port); c.putrequest(method, path, skip_host=False); c.endheaders(); r = c.getresponse(); print(r.status, method, path, r.read().decode()[:80].strip())
`
	d.gitOK("git_clone", map[string]any{"connection": "github", "repo": "acme/shop", "dir": "src/shop"})
	d.sh(strings.Replace(template, "exec python3 - \"$2\" >../../tried\nE\n", "exec python3 ../../try.py >../../tried 2>&1\nE\nchmod +x hooks/pre-push\ncat >../../try.py <<'P'\n"+script+"P\n", 1))
	l.opened = nil
	d.gitOK("git_push", map[string]any{"connection": "github", "repo": "acme/shop", "dir": "src/shop", "branch": "b"})
	tried, err := os.ReadFile(filepath.Join(d.cfg.Home, "volumes", "main", "tried"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(tried)), "\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, "403 ") && !strings.HasPrefix(line, "301 ") {
			t.Errorf("answered: %s", line)
		}
	}
	if len(lines) < 11 {
		t.Errorf("%s", tried)
	}
	if slices.ContainsFunc(l.opened, func(q connector.GitOpen) bool { return q.Service != "git-receive-pack" }) || len(l.opened) != 2 {
		t.Errorf("the broker was asked %+v", l.opened)
	}
}

// A push that is cut off is looked up: it was made, or it had no effect and never will, or nobody can say.
func TestPushThatIsCutOff(t *testing.T) {
	d := newBare(t, "network: off")
	server := gitkit.Start(t, canary)
	l := d.borrows(server)
	d.gitOK("git_clone", map[string]any{"connection": "github", "repo": "acme/shop", "dir": "shop"})
	main := server.Ref("main")
	n := 0
	for name, c := range map[string]struct {
		cut    cut
		state  connector.State
		pushed string
		made   bool
		words  string
	}{
		"the answer is lost":                     {cut{answer: true}, connector.Done, "new", true, "is at the commit"},
		"before it was whole":                    {cut{body: true}, connector.Done, "", false, "is as it was"},
		"the git server is not done":             {cut{server: true, answer: true}, connector.Unknown, "", false, "unknown_outcome"},
		"the answer is lost, and it is revoked":  {cut{answer: true, look: true}, connector.Unknown, "", true, "the grant was revoked"},
		"before it was whole, and it is revoked": {cut{body: true, look: true}, connector.Unknown, "", false, "the grant was revoked"},
	} {
		for _, there := range []bool{false, true} {
			n++
			branch, before, pushed := fmt.Sprint("b", n), "", c.pushed
			if there {
				d.gitOK("git_push", map[string]any{"connection": "github", "repo": "acme/shop", "dir": "shop", "branch": branch})
				if before = server.Ref(branch); pushed != "" {
					pushed = "updated"
				}
			}
			d.sh(fmt.Sprintf("cd shop && head -c %d /dev/urandom >big%d", 3*connector.MaxPiece, n))
			commit := d.gitOK("git_commit", map[string]any{"dir": "shop", "message": "more", "all": true}).Commit
			l.mu.Lock()
			l.cut = c.cut
			l.mu.Unlock()
			out, a := d.git("git_push", map[string]any{"connection": "github", "repo": "acme/shop", "dir": "shop", "branch": branch})
			l.mu.Lock()
			l.cut, l.refuse = cut{}, nil
			l.mu.Unlock()
			said := a.Message + out.Problem
			if a.State != c.state || out.Pushed != pushed || a.ToolError != (a.State == connector.Done && !c.made) || !strings.Contains(said, c.words) {
				t.Errorf("%s, there %v: %s, error %v, %+v, %s", name, there, a.State, a.ToolError, out, a.Message)
			}
			if at := server.Ref(branch); c.made && at != commit || !c.made && at != before {
				t.Errorf("%s, there %v: the branch is at %q", name, there, at)
			}
		}
	}
	if server.Ref("main") != main {
		t.Error("another branch has moved")
	}
}

func TestAdvert(t *testing.T) {
	line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	id := strings.Repeat("a", 40)
	service := line("# service=git-receive-pack\n") + "0000"
	for name, c := range map[string]struct {
		text, commit string
		ok           bool
	}{
		"there":            {service + line(id+" refs/heads/b\x00report-status\n") + "0000", id, true},
		"second":           {service + line(strings.Repeat("b", 40)+" refs/heads/a\x00caps\n") + line(id+" refs/heads/b\n") + "0000", id, true},
		"not there":        {service + line(id+" refs/heads/bb\x00caps\n") + "0000", "", true},
		"another's tail":   {service + line(id+" refs/heads/x\x00 refs/heads/b\n") + "0000", "", true},
		"an empty one":     {service + line(strings.Repeat("0", 40)+" capabilities^{}\x00caps\n") + "0000", "", true},
		"version 1":        {service + line("version 1\n") + line(id+" refs/heads/b\x00caps\n") + "0000", id, true},
		"cut":              {service + line(id+" refs/heads/b\x00caps\n"), "", false},
		"cut within":       {service + line(id + " refs/heads/b\x00caps\n")[:20], "", false},
		"nothing":          {"", "", false},
		"no lengths":       {"<html>not found</html>", "", false},
		"a length below 4": {service + "0003" + "0000", "", false},
		"too long":         {service + strings.Repeat(line(id+" refs/tags/"+strings.Repeat("t", 60000)+"\n"), 80) + "0000", "", false},
	} {
		var a advert
		for text := []byte(c.text); len(text) > 0; text = text[min(len(text), 7000):] {
			a.add(text[:min(len(text), 7000)])
		}
		if commit, ok := a.at("refs/heads/b"); commit != c.commit || ok != c.ok {
			t.Errorf("%s: %q, %v", name, commit, ok)
		}
	}
}

// silent is a broker whose git server answers nothing.
type silent struct{}

func (silent) Open(context.Context, connector.GitOpen) (Lent, error) { return silent{}, nil }
func (silent) Put(context.Context, []byte, bool) error               { return nil }
func (silent) Get(context.Context) ([]byte, string, bool, error)     { return nil, "", true, nil }
func (silent) Close()                                                {}

// That all of a push was sent stays true, whatever else a command in the cage sends over the port: what it begins and does not end
// takes nothing back. Git's own probe in front of a large push sends none of it.
func TestPushThatWasSentStaysSent(t *testing.T) {
	for name, c := range map[string]struct {
		sent  []string // a body that ends in … is cut off
		whole bool
	}{
		"nothing":                   {nil, false},
		"all of it":                 {[]string{"commands PACK"}, true},
		"some of it":                {[]string{"commands PA…"}, false},
		"a probe, and some of it":   {[]string{"0000", "commands PA…"}, false},
		"a probe, and all of it":    {[]string{"0000", "commands PACK"}, true},
		"all of it, and some again": {[]string{"commands PACK", "commands PA…"}, true},
		"all of it, and a probe":    {[]string{"commands PACK", "0000"}, true},
		"four bytes that are none":  {[]string{"PACK"}, true},
	} {
		b := &borrowing{broker: silent{}, does: "git-receive-pack", path: "/acme/shop.git/"}
		for _, text := range c.sent {
			whole, cutOff := strings.CutSuffix(text, "…")
			body := io.Reader(strings.NewReader(whole))
			if cutOff {
				body = io.MultiReader(body, iotest.ErrReader(io.ErrClosedPipe))
			}
			b.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/acme/shop.git/git-receive-pack", body))
		}
		if b.whole != c.whole || b.pushing != (len(c.sent) > 0) {
			t.Errorf("%s: all of it was sent %v, some %v", name, b.whole, b.pushing)
		}
	}
}
