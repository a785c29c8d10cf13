package up

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/gitkit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/dockerkit"
	api "github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// hub is a GitHub with a git server and pull requests.
type hub struct {
	*httptest.Server
	git *gitkit.Server
	mu  sync.Mutex
	all []map[string]any // pull requests, as they were asked for
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{git: gitkit.Make(t, githubToken)}
	mux := http.NewServeMux()
	mux.Handle("/", h.git)
	mux.HandleFunc("GET /repos/acme/shop/pulls", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") })
	mux.HandleFunc("POST /repos/acme/shop/pulls", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.Header.Get("Authorization") != "Bearer "+githubToken || h.git.Ref(fmt.Sprint(asked["head"])) == "" {
			http.Error(w, `{"message":"there is no such branch"}`, http.StatusUnprocessableEntity)
			return
		}
		h.mu.Lock()
		h.all = append(h.all, asked)
		h.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"number":8,"state":"open","title":%q,"html_url":"https://github.com/acme/shop/pull/8","head":{"ref":%q},"base":{"ref":"main"},"user":{"login":"bot"}}`, asked["title"], asked["head"])
	})
	h.Server = httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return h
}

// A hosted run works in a container: it clones a repository through the broker, edits a file, runs the repository's tests,
// pushes a branch and opens a pull request. Every step is in the ledger, in order and under its grants; and no token was ever
// on the machine.
func TestSeedExample2(t *testing.T) {
	engine := dockerkit.Engine(t)
	image := dockerkit.ImageWithGit(t, engine)
	h := newHub(t)
	h.git.Add(map[string]string{"greet.sh": "echo \"Helo, $1\"\n", "test.sh": "[ \"$(sh greet.sh you)\" = 'Hello, you' ] && echo all tests pass\n"})
	w := newWorld(t)
	o := w.newOutpostOf(environment.Docker, "dock", "min_isolation: [no_new_privs, landlock, seccomp, container]\ndocker: {image: \""+image+"\", memory: 256m}")
	t.Cleanup(func() { dockerkit.RemoveAll(t, engine, o.cfg.Home) })
	buskit.Eventually(t, "the machine is online", func() bool { return w.environment("dock").State == ask.Online })

	const planted = "canary-of-this-very-test"
	repo := map[string]string{"connection": "github", "repo": "acme/shop", "dir": "shop"}
	w.scripted("worker",
		scriptmodel.Call{Tool: "machine.git_clone", Args: repo},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "sh test.sh", "cwd": "shop"}},
		scriptmodel.Call{Tool: "machine.git_branch", Args: map[string]string{"dir": "shop", "name": "agent/hello"}, Values: map[string]string{"create": "true"}},
		scriptmodel.Call{Tool: "machine.edit_file", Args: map[string]string{"path": "shop/greet.sh"}, Values: map[string]string{"edits": `[{"old": "Helo", "new": "Hello"}]`}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "sh test.sh", "cwd": "shop"}},
		scriptmodel.Call{Tool: "machine.git_commit", Args: map[string]string{"dir": "shop", "message": "Spell hello"}, Values: map[string]string{"all": "true"}},
		scriptmodel.Call{Tool: "machine.git_push", Args: map[string]string{"connection": "github", "repo": "acme/shop", "dir": "shop", "branch": "main"}},
		scriptmodel.Call{Tool: "machine.git_push", Args: map[string]string{"connection": "github", "repo": "acme/shop", "dir": "shop", "branch": "agent/hello"}},
		scriptmodel.Call{Tool: "github.create_pull_request", Args: map[string]string{"owner": "acme", "repo": "shop", "title": "Spell hello", "head": "agent/hello", "base": "main"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "echo " + planted + " >/tmp/in-the-container; echo " + planted + " >in-the-volume; PLANTED=" + planted + " exec sleep 600"}, Values: map[string]string{"background": "true"}},
	)
	for _, err := range []error{
		w.PutConnection(t.Context(), connection.Defined{Connection: "con_github", Type: connection.GitHub, URL: h.URL, Private: []string{hostport(h.URL)}}, githubToken),
		w.PutGrant(t.Context(), grant.Created{Grant: "grt_fetch", Agent: "agt_worker", Selector: grant.Selector{Tool: "github.git_fetch", Repos: []string{"acme/shop"}}, Approval: grant.Never, Tainted: true}),
		w.PutGrant(t.Context(), grant.Created{Grant: "grt_push", Agent: "agt_worker", Selector: grant.Selector{Tool: "github.git_push", Repos: []string{"acme/shop"}}, Condition: `args.branch.startsWith("agent/")`, Approval: grant.Never, Tainted: true}),
		w.PutGrant(t.Context(), grant.Created{Grant: "grt_pull", Agent: "agt_worker", Selector: grant.Selector{Tool: "github.create_pull_request", Repos: []string{"acme/shop"}}, Approval: grant.Never, Tainted: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	buskit.Eventually(t, "the tools are listed", func() bool {
		all, err := w.Connections(t.Context())
		return err == nil && len(all) == 1 && len(all[0].Tools) > 0
	})
	if _, err := w.Attach(t.Context(), "dock", api.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	before := h.git.Ref("main")
	outcomes, row := w.results("worker")
	if row.State != "completed" || len(outcomes) != 10 {
		t.Fatalf("the run ended %s after %d calls: %s\n%s", row.State, len(outcomes), row.Message, outcomes)
	}

	// What came of it.
	cloned, committed, pushed := resultOf[machine.Git](t, outcomes[0]), resultOf[machine.Git](t, outcomes[5]), resultOf[machine.Git](t, outcomes[7])
	if cloned.Commit != before || h.git.Ref("main") != before || pushed.Pushed != "new" || pushed.Commit != committed.Commit || h.git.Ref("agent/hello") != committed.Commit {
		t.Errorf("cloned %+v, committed %+v, pushed %+v; the server has %s", cloned, committed, pushed, h.git.Ref("agent/hello"))
	}
	first, second := resultOf[machine.Exec](t, outcomes[1]), resultOf[machine.Exec](t, outcomes[4])
	if first.Code == nil || *first.Code == 0 || second.Stdout != "all tests pass\n" || !strings.Contains(second.Isolation, "container") {
		t.Errorf("the tests: before %+v, after %+v", first, second)
	}
	h.mu.Lock()
	if len(h.all) != 1 || h.all[0]["head"] != "agent/hello" {
		t.Errorf("pull requests %v", h.all)
	}
	h.mu.Unlock()

	// The ledger: each call in its order, requested, admitted under both its grants, and finished; and the one that was not.
	w.mustVerify()
	var steps []string
	for _, e := range w.whole(row) {
		switch ev := e.(type) {
		case call.Requested:
			steps = append(steps, "requested "+ev.Tool)
		case call.Admitted:
			steps = append(steps, strings.TrimSuffix(fmt.Sprintf("admitted %s by %s+%s", ev.Tool, ev.Grant, ev.Lent.Grant), "+"))
		case call.Refused:
			steps = append(steps, fmt.Sprintf("refused %s by %s+%s", ev.Tool, ev.Grant, ev.Lent.Grant))
		case call.Finished:
			steps = append(steps, "finished "+ev.Tool)
		}
	}
	var want []string
	for _, one := range []struct{ tool, grants string }{
		{"machine.git_clone", "grt_worker+grt_fetch"}, {"machine.exec", "grt_worker"}, {"machine.git_branch", "grt_worker"}, {"machine.edit_file", "grt_worker"}, {"machine.exec", "grt_worker"},
		{"machine.git_commit", "grt_worker"}, {"machine.git_push", ""}, {"machine.git_push", "grt_worker+grt_push"}, {"github.create_pull_request", "grt_pull"}, {"machine.exec", "grt_worker"},
	} {
		want = append(want, "requested "+one.tool)
		if one.grants == "" {
			want = append(want, "refused "+one.tool+" by grt_worker+grt_push")
			continue
		}
		want = append(want, "admitted "+one.tool+" by "+one.grants, "finished "+one.tool)
	}
	if !slices.Equal(steps, want) {
		t.Errorf("the ledger has\n%s\nwant\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
	}

	// The machine: what was planted is found in each place, and the token in none.
	places := machinePlaces(t, engine, o.cfg.Home)
	for where, holds := range places {
		if !holds(planted) {
			t.Errorf("what was planted is not found in %s", where)
		}
		for _, one := range spellings(githubToken) {
			if holds(one) {
				t.Errorf("the token is in %s, as %q", where, one)
			}
		}
	}
}

// whole gives the events of a run, in order.
func (w *world) whole(row ask.RunRow) (out []any) {
	w.t.Helper()
	var after api.Cursor
	for more := true; more; {
		page, err := w.Timeline(w.t.Context(), row.Run, after)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range page.Events {
			envelope, err := e.Envelope()
			if err != nil {
				w.t.Fatal(err)
			}
			if ev, err := envelope.Decode(); err == nil {
				out = append(out, ev)
			}
		}
		more, after = page.More, page.Next
	}
	return out
}

// machinePlaces reads everything that is on a machine: the file system of each of its containers, the environments and
// command lines of their processes, and the connector's home with volumes, receipts and output.
func machinePlaces(t *testing.T, engine *client.Client, home string) map[string]func(string) bool {
	t.Helper()
	var images, processes, files bytes.Buffer
	spaces := map[string]bool{}
	for _, name := range dockerkit.Containers(t, engine, home) {
		export, err := engine.ContainerExport(t.Context(), name, client.ContainerExportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&images, export); err != nil {
			t.Fatal(err)
		}
		_ = export.Close()
		c, err := engine.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.Container.State.Pid))
		if err != nil {
			t.Fatal(err)
		}
		spaces[space] = true
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if space, err := os.Readlink(p + "/ns/pid"); err != nil || !spaces[space] {
			continue // not of these containers, or gone
		}
		for _, file := range []string{"environ", "cmdline"} {
			raw, err := os.ReadFile(filepath.Join(p, file))
			if err == nil {
				processes.Write(raw)
			}
		}
	}
	err = filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		files.Write(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]func(string) bool{}
	for where, text := range map[string]*bytes.Buffer{"the containers' files": &images, "their processes": &processes, "the connector's home": &files} {
		out[where] = func(what string) bool { return bytes.Contains(text.Bytes(), []byte(what)) }
	}
	return out
}
