package up

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/natsd"
	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/trigger"
	"github.com/execwarden/execwarden/services/environments"
	"github.com/execwarden/execwarden/services/gateway"
	"github.com/execwarden/execwarden/services/runtime/workerkit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/sample/fakegithub"
	"github.com/execwarden/execwarden/tools/sample/internalapi"
	"github.com/execwarden/execwarden/tools/sample/loopback"
	"github.com/execwarden/execwarden/tools/sample/publicpage"
	"github.com/execwarden/execwarden/tools/sample/webhook"
)

const (
	hookSecret  = "a webhook secret of the sample"
	githubToken = "ghp_pretend_token_of_the_sample"
)

// world is a whole ExecWarden and everything around it, for one test.
type world struct {
	t      testing.TB
	dir    string
	github *fakegithub.Server
	api    *internalapi.Server
	page   *publicpage.Server
	model  *loopback.Server

	*client.Client
	endpoints Endpoints
	nats      *natsd.Server
	postgres  *postgres.Server
	stop      func()
	logs      io.Writer // default: the test's own output
	listen    string    // of the API; default: a port of 127.0.0.1
	machines  func(*environments.Config)
	gateway   func(*gateway.Config)
	approvals time.Duration // how long a held call waits; default: an hour
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := newWorldAround(t)
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// newWorldAround is everything but ExecWarden itself.
func newWorldAround(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: shortDir(t), api: internalapi.New(""), page: publicpage.New(publicpage.Example), model: sample.NewModel(sample.Script())}
	var err error
	if w.github, err = fakegithub.New(fakegithub.Config{Token: githubToken}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []interface {
		Start(context.Context) error
		Close() error
	}{w.github, w.api, w.page, w.model} {
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
	}
	return w
}

// shortDir is a directory that Postgres's own user can enter.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ew")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// start runs ExecWarden on the world's data and waits until it works.
func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	cfg := Config{DataDir: filepath.Join(w.dir, "data"), Listen: cmp.Or(w.listen, "127.0.0.1:0"), machines: w.machines, gateway: w.gateway, HooksListen: "127.0.0.1:0", OpsListen: "127.0.0.1:0",
		SyncInterval: time.Minute, WorkerPath: workerkit.BuildWorker(w.t), ApprovalLife: cmp.Or(w.approvals, time.Hour), LogFormat: "text", LogLevel: "warn"}
	up := make(chan struct{})
	cfg.started = func(n *natsd.Server, p *postgres.Server) { w.nats, w.postgres = n, p; close(up) }
	logs := w.logs
	if logs == nil {
		logs = testLog{w.t}
	} else {
		cfg.LogLevel = "debug"
	}
	go func() { ended <- Run(ctx, cfg, logs) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("up: %v", err)
		}
	})
	select {
	case <-up:
	case err := <-ended:
		w.t.Fatalf("up: %v", err)
	}
	w.endpoints = w.awaitEndpoints(cfg.DataDir)
	w.connect()
}

func (w *world) connect() {
	w.t.Helper()
	token, err := os.ReadFile(w.endpoints.TokenFile)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.Client, err = client.New(client.Config{URL: w.endpoints.API, Token: strings.TrimSpace(string(token))}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) awaitEndpoints(dataDir string) (e Endpoints) {
	w.t.Helper()
	buskit.Eventually(w.t, "execwarden is up", func() bool {
		read, err := ReadEndpoints(dataDir)
		e = read
		return err == nil
	})
	return e
}

func hostport(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// configure sets the sample up: agent, connections, grants, hook and trigger.
func (w *world) configure(rule grant.Approval) {
	w.t.Helper()
	ctx := w.t.Context()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	must(w.PutConnection(ctx, connection.Defined{Connection: "con_github", Type: connection.GitHub, URL: w.github.URL(), Private: []string{hostport(w.github.URL())}}, githubToken))
	must(w.PutConnection(ctx, connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: w.api.URL(), Private: []string{hostport(w.api.URL())}, Trusted: true}, ""))
	must(w.PutAgent(ctx, agent.Defined{
		Agent: "agt_triage", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Triage new issues."},
		Model:   agent.Model{Protocol: "openai", URL: w.model.URL(), Name: "scripted-triage", Private: []string{hostport(w.model.URL())}},
		Runtime: agent.Runtime{Enabled: true, Egress: []agent.Egress{{Hosts: []string{hostport(w.page.URL())}, Private: []string{hostport(w.page.URL())}}}},
	}, ""))
	for name, g := range map[id.Grant]grant.Created{
		"grt_javascript": {Selector: grant.Selector{Tool: "runtime.run_javascript"}, Approval: grant.Never},
		"grt_owner":      {Selector: grant.Selector{Tool: "tickets.find_owner"}, Approval: grant.Never},
		"grt_comment":    {Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"Codertocat/Hello-World"}}, Approval: rule, Tainted: true},
	} {
		g.Grant, g.Agent = name, "agt_triage"
		must(w.PutGrant(ctx, g))
	}
	must(w.PutHook(ctx, "hook_github", hookSecret))
	must(w.PutTrigger(ctx, trigger.Defined{
		Trigger: "trg_triage", Hook: "hook_github", Events: []string{"issues.opened"}, Repos: []string{"Codertocat/Hello-World"}, Agent: "agt_triage",
		Prompt: "Triage this new issue.\nrepository: {{.Repo}}\nissue: {{.Number}}\ntitle: {{.Title}}\nstatus page: " + w.page.URL() + "/status.json\n",
	}))
	buskit.Eventually(w.t, "the tools are listed", func() bool {
		all, err := w.Connections(ctx)
		if err != nil {
			return false
		}
		n := 0
		for _, c := range all {
			if len(c.Tools) > 0 {
				n++
			}
		}
		return n == 2
	})
}

// deliver sends GitHub's own example of a new issue.
func (w *world) deliver(guid string) *http.Response {
	w.t.Helper()
	resp, err := webhook.Deliver(w.t.Context(), http.DefaultClient, webhook.Delivery{
		URL: w.endpoints.Hooks + "/hooks/tnt_main/hook_github", Secret: hookSecret, Event: "issues", ID: guid, HookID: "1",
		Body: webhook.Payload(webhook.IssuesOpened),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// waitingApproval waits for the one approval that waits.
func (w *world) waitingApproval() (a ask.Approval) {
	w.t.Helper()
	buskit.Eventually(w.t, "an approval waits", func() bool {
		list, err := w.Approvals(w.t.Context(), true)
		if err != nil || len(list) != 1 {
			return false
		}
		a = list[0]
		return true
	})
	return a
}

// ended waits until the newest run has ended.
func (w *world) ended() (r ask.RunRow) {
	w.t.Helper()
	buskit.Eventually(w.t, "the run ends", func() bool {
		page, err := w.Runs(w.t.Context(), 1, "")
		if err != nil || len(page.Runs) == 0 {
			return false
		}
		r = page.Runs[0]
		return !r.Ended.IsZero()
	})
	return r
}

// endedAs waits until a run is known to have ended. The newest run that is known need not be it yet.
func (w *world) endedAs(run id.Run) (r ask.RunRow) {
	w.t.Helper()
	buskit.Eventually(w.t, "the run ends", func() bool {
		page, err := w.Runs(w.t.Context(), 100, "")
		if err != nil {
			return false
		}
		i := slices.IndexFunc(page.Runs, func(r ask.RunRow) bool { return r.Run == run && !r.Ended.IsZero() })
		if i >= 0 {
			r = page.Runs[i]
		}
		return i >= 0
	})
	return r
}

// endedRuns waits until there are n runs and all have ended.
func (w *world) endedRuns(n int) {
	w.t.Helper()
	buskit.Eventually(w.t, "the runs end", func() bool {
		page, err := w.Runs(w.t.Context(), 100, "")
		if err != nil || len(page.Runs) != n {
			return false
		}
		for _, r := range page.Runs {
			if r.Ended.IsZero() {
				return false
			}
		}
		return true
	})
}

func (w *world) approve(a ask.Approval) {
	w.t.Helper()
	for {
		_, err := w.Decide(w.t.Context(), a.Approval, client.Decision{Digest: a.Digest, Approve: true})
		if err == nil {
			return
		}
		if code := problem.CodeOf(err); code != problem.Unavailable && code != problem.Timeout && code != problem.Pending {
			w.t.Fatal(err)
		}
	}
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	fmt.Fprintf(os.Stderr, "%s: %s", l.t.Name(), p)
	return len(p), nil
}
