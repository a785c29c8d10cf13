package up

import (
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// gitWorld is a hub, a machine without containers that is attached to a worker, and the worker's grants on both.
func gitWorld(t *testing.T, push grant.Approval, calls ...scriptmodel.Call) (*world, *hub) {
	t.Helper()
	h := newHub(t)
	w := newWorld(t)
	w.newOutpost("box", "network: off")
	w.scripted("worker", calls...)
	for _, err := range []error{
		w.PutConnection(t.Context(), connection.Defined{Connection: "con_github", Type: connection.GitHub, URL: h.URL, Private: []string{hostport(h.URL)}}, githubToken),
		w.PutGrant(t.Context(), grant.Created{Grant: "grt_fetch", Agent: "agt_worker", Selector: grant.Selector{Tool: "github.git_fetch", Repos: []string{"acme/*"}}, Approval: grant.Never, Tainted: true}),
		w.PutGrant(t.Context(), grant.Created{Grant: "grt_push", Agent: "agt_worker", Selector: grant.Selector{Tool: "github.git_push", Repos: []string{"acme/*"}}, Approval: push, Tainted: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	buskit.Eventually(t, "the tools are listed", func() bool {
		all, err := w.Connections(t.Context())
		return err == nil && len(all) == 1 && len(all[0].Tools) > 0
	})
	buskit.Eventually(t, "the machine is online", func() bool { return w.environment("box").State == ask.Online })
	if _, err := w.Attach(t.Context(), "box", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	return w, h
}

// A push that the connection's grant holds waits for a person, and is made once they approve.
func TestPushIsApproved(t *testing.T) {
	w, h := gitWorld(t, grant.Always,
		scriptmodel.Call{Tool: "machine.git_clone", Args: map[string]string{"connection": "github", "repo": "acme/shop"}},
		scriptmodel.Call{Tool: "machine.git_clone", Args: map[string]string{"connection": "github", "repo": "acme/none"}},
		scriptmodel.Call{Tool: "machine.git_push", Args: map[string]string{"connection": "github", "repo": "acme/shop", "dir": "shop", "branch": "agent/one"}},
	)
	started, err := w.StartRun(t.Context(), "worker", "go")
	if err != nil {
		t.Fatal(err)
	}
	a := w.waitingApproval()
	if a.Tool != "machine.git_push" || !strings.Contains(a.Reason, "github.git_push: the grant holds every call") || h.git.Ref("agent/one") != "" {
		t.Errorf("%+v", a)
	}
	w.approve(a)
	row := w.endedAs(started.Run)
	if row.State != "completed" || h.git.Ref("agent/one") != h.git.Ref("main") {
		t.Errorf("the run ended %s: %s; the branch is %q", row.State, row.Message, h.git.Ref("agent/one"))
	}
	var cloned []machine.Git
	for _, e := range w.whole(row) {
		if f, ok := e.(call.Finished); ok && f.Tool == "machine.git_clone" {
			cloned = append(cloned, resultOf[machine.Git](t, []byte(`{"body":{"result":`+string(f.Body.Result)+`}}`)))
		}
	}
	if len(cloned) != 2 || cloned[0].Commit == "" || !strings.Contains(cloned[1].Problem, "the git server has no repository acme/none") {
		t.Errorf("cloned %+v", cloned)
	}
}

// Taking the connection's grant away in the middle of a clone ends it: at the git server, at the broker and on the machine.
func TestCloneIsRevoked(t *testing.T) {
	w, h := gitWorld(t, grant.Never, scriptmodel.Call{Tool: "machine.git_clone", Args: map[string]string{"connection": "github", "repo": "acme/shop"}})
	asked, left := make(chan struct{}), make(chan struct{})
	answer := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(left)
	})
	h.git.Answer.Store(&answer)
	started, err := w.StartRun(t.Context(), "worker", "go")
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	if _, err := w.Revoke(t.Context(), "fetch", "it was a mistake"); err != nil {
		t.Fatal(err)
	}
	<-left
	row := w.endedAs(started.Run)
	ended := false
	for _, e := range w.whole(row) {
		switch ev := e.(type) {
		case call.Unknown:
			ended = strings.Contains(ev.Message, "the grant was revoked")
		case call.Cancelled:
			ended = strings.Contains(ev.Reason, "the grant was revoked")
		case call.Finished:
			t.Errorf("it finished: %+v", ev)
		}
	}
	if !ended {
		t.Errorf("the call has no end by the revocation: %+v", w.whole(row))
	}
	buskit.Eventually(t, "nothing runs on the machine", func() bool { return w.environment("box").Execs == 0 })
}
