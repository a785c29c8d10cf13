package up

import (
	"net/http"
	"strings"
	"sync/atomic"
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

// A VM gives a hosted run access to a private service, while the run's GitHub calls still go through the broker: the
// control plane does not reach the service, and the machine and what is behind it do not reach GitHub, nor its credential.
func TestSeedExample3(t *testing.T) {
	s := newSite(t)
	w := newWorldAround(t)
	w.listen = s.warden + ":0"
	w.start()
	t.Cleanup(func() { w.stop() })
	var asked atomic.Int64
	private := s.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			t.Error("a credential came along")
		}
		_, _ = rw.Write([]byte("stock of " + r.URL.Path[1:] + ": 41\n"))
	}))
	v := s.newVM(w, "vm", "network: targets\ntargets: [\""+private+"\"]\nprivate_http:\n  - target: http://"+private+"/stock/\n")
	v.online()

	// Who reaches what.
	for _, c := range []struct {
		who, namespace, what, address string
		reaches                       bool
	}{
		{"the machine", s.machine, "the private service", private, true},
		{"the machine", s.machine, "ExecWarden", hostport(w.endpoints.API), true},
		{"the machine", s.machine, "GitHub", hostport(w.github.URL()), false},
		{"the private network", s.private, "GitHub", hostport(w.github.URL()), false},
		{"the private network", s.private, "ExecWarden", hostport(w.endpoints.API), false},
		{"the control plane", "", "the private service", private, false},
		{"the control plane", "", "GitHub", hostport(w.github.URL()), true},
	} {
		if got := s.reaches(c.namespace, c.address); got != c.reaches {
			t.Errorf("%s reaches %s: %v, want %v", c.who, c.what, got, c.reaches)
		}
	}

	if err := w.PutConnection(t.Context(), connection.Defined{Connection: "con_github", Type: connection.GitHub, URL: w.github.URL(), Private: []string{hostport(w.github.URL())}}, githubToken); err != nil {
		t.Fatal(err)
	}
	fetch := `python3 -c 'import urllib.request,sys; print(urllib.request.urlopen(sys.argv[1],timeout=2).read().decode(),end="")' `
	w.scripted("stock",
		scriptmodel.Call{Tool: "machine.http_private", Args: map[string]string{"url": "http://" + private + "/stock/bolts"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": fetch + "http://" + private + "/stock/nuts"}},
		scriptmodel.Call{Tool: "machine.http_private", Args: map[string]string{"url": "http://" + private + "/admin"}},
		scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": fetch + w.github.URL() + "/repos/Codertocat/Hello-World; NO_PROXY= no_proxy= " + fetch + w.github.URL() + "/repos/Codertocat/Hello-World; env"}},
		scriptmodel.Call{Tool: "github.add_issue_comment", Args: map[string]string{"owner": "Codertocat", "repo": "Hello-World", "body": "41 are in stock"}, Values: map[string]string{"issue_number": "1"}},
	)
	if err := w.PutGrant(t.Context(), grant.Created{Grant: "grt_comment", Agent: "agt_stock", Selector: grant.Selector{Tool: "github.add_issue_comment", Repos: []string{"Codertocat/Hello-World"}}, Approval: grant.Never, Tainted: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Attach(t.Context(), "vm", client.Attachment{Agent: "stock"}); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the tools are listed", func() bool {
		all, err := w.Connections(t.Context())
		return err == nil && len(all) == 1 && len(all[0].Tools) > 0
	})
	results, row := w.results("stock")
	if row.State != "completed" || len(results) != 5 {
		t.Fatalf("the run %+v, results %s", row, results)
	}
	if got := resultOf[machine.HTTP](t, results[0]); got.Status != 200 || got.Text != "stock of stock/bolts: 41\n" || got.Address != private {
		t.Errorf("http_private %+v", got)
	}
	if got := resultOf[machine.Exec](t, results[1]); got.Code == nil || *got.Code != 0 || got.Stdout != "stock of stock/nuts: 41\n" {
		t.Errorf("exec %+v", got)
	}
	if !strings.Contains(string(results[2]), "the machine's policy, rule private_http") {
		t.Errorf("what is not listed: %s", results[2])
	}
	if got := resultOf[machine.Exec](t, results[3]); !strings.Contains(got.Stderr, "refused") || !strings.Contains(got.Stderr, "403") || strings.Contains(got.Stdout, githubToken) {
		t.Errorf("GitHub from the machine: %+v", got)
	}
	if w.github.Effects() != 1 || asked.Load() != 2 {
		t.Errorf("%d comments, the private service was asked %d times", w.github.Effects(), asked.Load())
	}
	// Who carried out what, as it is recorded.
	routes := map[string]call.Route{}
	for _, ev := range w.decoded(row.Run) {
		if a, ok := ev.(call.Admitted); ok {
			routes[a.Tool] = a.Route
		}
	}
	if routes["machine.http_private"] != call.Exec || routes["machine.exec"] != call.Exec || routes["github.add_issue_comment"] != call.Upstream {
		t.Errorf("routes %v", routes)
	}
	if e := w.environment("vm"); e.State != ask.Online || e.Manifest == nil || len(e.Manifest.PrivateHTTP) != 1 {
		t.Errorf("the environment %+v", e)
	}
	w.mustVerify()
}
