package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// TestInBrowser opens the pages in Chromium: what the stream brings after the page arrives, and hostile text stays
// text. With EXECWARDEN_SCREENSHOTS set to a folder it also leaves pictures there, to be looked at.
func TestInBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium")
	}
	h := start(t)
	h.story(t)
	// The browser's command line cannot log in, so a proxy brings the session along.
	session := h.session(t)
	target, err := url.Parse(h.base)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.AddCookie(session)
	}})
	t.Cleanup(proxy.Close)

	look := func(flags ...string) string {
		cmd := exec.CommandContext(t.Context(), chromium, append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
			"--user-data-dir=" + t.TempDir(), "--virtual-time-budget=3000",
		}, flags...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}

	h.mu.Lock()
	events := len(h.recorded)
	h.mu.Unlock()
	// Chromium's virtual time may run out before a busy machine has answered, so each page is opened until it is there.
	for path, whole := range map[string]func(dom string) bool{
		"/runs/run_1": func(dom string) bool { return strings.Count(dom, `<li id="e-EW_ACTIVITY-`) == events },
		"/approvals":  func(dom string) bool { return strings.Contains(dom, "Approve once") },
	} {
		buskit.Eventually(t, path+" is whole and live", func() bool {
			dom := look("--dump-dom", proxy.URL+path)
			if strings.Contains(dom, "<title>owned") {
				t.Fatalf("a hostile text ran:\n%s", dom)
			}
			return whole(dom) && strings.Contains(dom, ">Live<")
		})
	}

	folder := os.Getenv("EXECWARDEN_SCREENSHOTS")
	if folder == "" {
		return
	}
	for name, path := range map[string]string{"runs": "/", "run": "/runs/run_1", "approvals": "/approvals", "approval": "/approvals/apr_4", "missing": "/runs/run_unheard", "login": "/login?code=x",
		"callback": "/oauth/callback?state=tnt_main.con_tickets.secret&code=x&iss=https://auth.example.com"} {
		for _, size := range []string{"1200,900", "360,1400"} {
			width, _, _ := strings.Cut(size, ",")
			look("--screenshot="+filepath.Join(folder, name+"-"+width+".png"), "--window-size="+size, "--hide-scrollbars", proxy.URL+path)
		}
	}
	look("--screenshot="+filepath.Join(folder, "approvals-dark.png"), "--window-size=1200,900", "--force-dark-mode", "--blink-settings=preferredColorScheme=0", proxy.URL+"/approvals")
}

// story records what a day looks like.
func (h *house) story(t *testing.T) {
	t.Helper()
	args := json.RawMessage(`{"owner":"acme","repo":"web","issue_number":412,"body":"Thanks for the report! I can reproduce it on v2.3.1:\n\n1. Open the cart\n2. Remove the last item\n\nThe total stays at the old value. I have labelled this as a bug."}`)
	for _, ev := range []struct {
		who string
		say interface{ Kind() string }
	}{
		{"mem_owner", run.Created{Run: "run_1", Agent: agent.Defined{Agent: "agt_triage"}, Body: run.Prompt{Text: "Issue #412 was opened: “Cart total is wrong after removing the last item”. Reproduce it and answer."}}},
		{"service:agentloop", run.ModelRequested{Run: "run_1", Step: 1, Attempt: 1}},
		{"service:agentloop", run.ModelCompleted{Run: "run_1", Step: 1, Body: run.Answer{Text: "I will read the issue first.", Calls: []run.ToolUse{{Tool: "github.get_issue"}}}}},
		{"agt_triage", call.Requested{Run: "run_1", Tool: "github.get_issue", Body: call.Args{Args: json.RawMessage(`{"owner":"acme","repo":"web","issue_number":412}`)}}},
		{"service:toolbroker", call.Admitted{Run: "run_1", Tool: "github.get_issue", Grant: "grt_read-web"}},
		{"service:toolbroker", call.Finished{Run: "run_1", Tool: "github.get_issue", Body: call.Result{Result: json.RawMessage(`{"title":"Cart total is wrong","body":"<img src=x onerror=\"document.title='owned'\"> steps below"}`)}}},
		{"agt_triage", call.Requested{Run: "run_1", Tool: "github.delete_repo", Body: call.Args{Args: json.RawMessage(`{"owner":"acme","repo":"web"}`)}}},
		{"service:toolbroker", call.Refused{Run: "run_1", Tool: "github.delete_repo", Code: "denied", Reason: "no grant of agt_triage covers this tool"}},
		{"agt_triage", call.Requested{Run: "run_1", Tool: "github.create_issue_comment", Body: call.Args{Args: args}}},
		{"service:toolbroker", call.Held{Run: "run_1", Tool: "github.create_issue_comment", Reason: "the grant asks a person for every call"}},
		{"service:approvals", approval.Requested{Approval: "apr_1", Run: "run_1", Tool: "github.create_issue_comment", Reason: "the grant asks a person for every call"}},
	} {
		h.record(t, "run_1", ev.who, ev.say)
	}
	h.wait(aWaiting(string(args)))
	second := aWaiting(`{"owner":"acme","repo":"web","title":"` + `Fix \u202egnp.exe` + `","<script>document.title='owned'</script>":[1,{"a":null}]}`)
	second.Approval, second.Tool, second.Digest = "apr_2", "github.create_issue", "sha256:77aa"
	h.wait(second)
	edited := aWaiting(`{"owner":"acme","repo":"web","issue_number":412,"body":"Thanks for the report!\n\nWe can reproduce it."}`)
	edited.Approval, edited.Digest, edited.Asked, edited.Editors, edited.FourEyes, edited.StartedBy = "apr_4", "sha256:12ab", args, []id.Member{"mem_owner"}, true, "mem_ann"
	h.wait(edited)
	closed := aWaiting(`{}`)
	closed.Approval, closed.State, closed.By = "apr_3", "denied", "mem_owner"
	h.wait(closed)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range []ask.RunRow{
		{State: "waiting_approval", Events: 11, Trigger: "trg_issues"},
		{State: "running", Events: 4},
		{State: "completed", Events: 27, Message: "Labelled #409 as a duplicate of #371, and left a comment that links to it."},
		{State: "failed", Events: 3, Message: "the model refused the key: 401"},
		{State: "cancelled", Events: 9, Message: "wrong repository"},
	} {
		r.Run, r.Agent, r.Created = id.Derive[id.Run](string(rune('a'+i))), "agt_triage", at.Add(-time.Duration(i)*7*time.Minute)
		if i == 0 {
			r.Run = "run_1"
		}
		h.runs = append(h.runs, r)
	}
}
