package gateway

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// hostile is text that would do something if a page did not treat it as text.
var hostile = []string{
	`<script>document.title='owned'</script>`, `"><img src=x onerror="document.title='owned'">`, `'-alert(1)-'`, `{{.}}`, `</pre></details><iframe src=//evil.example>`,
	`javascript:alert(1)`, "<svg/onload=alert(1)>", `" hx-get="/v1/whoami" hx-trigger="load`, "a\r\ndata: <b>x</b>\r\n\r\nevent: notice", "&lt;b&gt;", "\u202egpj.exe", "a\u200bb", "\x1b[31m", "\u2028x",
}

// tell records a run that says text wherever a run can.
func (h *house) tell(t *testing.T, runID id.Run, text string) {
	t.Helper()
	args, err := json.Marshal(map[string]string{"owner": "acme", "repo": "web", "body": text, text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	h.record(t, runID, "mem_owner", run.Created{Run: runID, Agent: agent.Defined{Agent: "agt_triage"}, Body: run.Prompt{Text: text}})
	h.record(t, runID, "service:agentloop", run.ModelCompleted{Run: runID, Step: 1, Body: run.Answer{Text: text, Calls: []run.ToolUse{{Tool: text, Args: args}}}})
	h.record(t, runID, "agt_triage", call.Requested{Run: runID, Tool: text, Body: call.Args{Args: args}})
	h.record(t, runID, "service:toolbroker", call.Finished{Run: runID, Tool: text, Body: call.Result{Result: quoted}})
	h.record(t, runID, "service:agentloop", run.Failed{Run: runID, Message: text})
	h.mu.Lock()
	h.runs = append(h.runs, ask.RunRow{Run: runID, Agent: "agt_triage", State: "failed", Created: time.Now(), Message: text})
	h.mu.Unlock()
	a := aWaiting(string(args))
	a.Approval, a.Tool, a.Reason = id.Approval("apr_"+id.Name(runID)), text, text
	h.wait(a)
}

func TestHostileTextIsOnlyText(t *testing.T) {
	h := start(t)
	cookie := h.session(t)
	for i, text := range hostile {
		runID := id.Run(fmt.Sprintf("run_%d", i))
		h.tell(t, runID, text)
		got := h.browse(t, "/runs/"+string(runID), cookie)
		if got.status != 200 {
			t.Fatalf("%q: %+v", text, got)
		}
		checkInert(t, text, got.body)
		read, stop := h.open(t, "/runs/"+string(runID)+"/live?after=0:0")
		for range 5 {
			m := read()
			if m.event != "" {
				t.Errorf("%q became a message: %+v", text, m)
			}
			checkInert(t, text, m.data)
		}
		stop()
	}
	for _, path := range []string{"/", "/approvals"} {
		got := h.browse(t, path, cookie)
		if got.status != 200 {
			t.Fatalf("%s: %+v", path, got)
		}
		checkInert(t, path, got.body)
	}
}

func checkInert(t *testing.T, where, html string) {
	t.Helper()
	for _, bad := range []string{"<script>", "<img", "<iframe", "<svg", "onerror=\"", "hx-get=\"", "href=\"javascript", "<b>", "\u202e", "\u200b", "\x1b", "\u2028"} {
		if strings.Contains(html, bad) {
			t.Errorf("%s holds %q:\n%s", where, bad, html)
		}
	}
}

func TestPagesAreLockedDown(t *testing.T) {
	h := start(t)
	cookie := h.session(t)
	for _, path := range []string{"/", "/approvals", "/login?code=x", "/static/console.js", "/nowhere"} {
		got := h.browse(t, path, cookie)
		policy := got.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'self'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if got.header.Get("Cache-Control") != "no-store" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, got.header)
		}
		for _, bad := range []string{"<script>", " style=\"", " onclick", "http://", "https://"} {
			if strings.HasPrefix(got.header.Get("Content-Type"), "text/html") && strings.Contains(got.body, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
	}
	if got := h.browse(t, "/runs/run_unheard", cookie); got.status != 404 {
		t.Error(got)
	}
	if got := h.browse(t, "/runs/x%2f..%2f..", cookie); got.status != 404 {
		t.Error(got)
	}
}

func TestDecisionIsAboutWhatThePageShowed(t *testing.T) {
	h := start(t)
	h.wait(aWaiting(`{"owner":"acme","repo":"web","issue_number":7,"body":"Thanks!"}`))
	cookie := h.session(t)
	got := h.browse(t, "/approvals", cookie)
	for _, want := range []string{"agt_triage", "github.create_issue_comment", "acme/web", "Thanks!", `name="digest" value="sha256:5f0c3b"`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
	if got := h.submit(t, "/approvals/apr_1/decide", h.base, url.Values{"digest": {"other"}, "decision": {"approve"}}, cookie); got.status != 409 {
		t.Error(got)
	}
	if got := h.submit(t, "/approvals/apr_1/decide", h.base, url.Values{"digest": {"sha256:5f0c3b"}}, cookie); got.status != 400 {
		t.Error(got)
	}
	got = h.submit(t, "/approvals/apr_1/decide", h.base, url.Values{"digest": {"sha256:5f0c3b"}, "decision": {"deny"}, "note": {"no"}}, cookie)
	q, _ := h.last("approval_decide")
	if d := q.body.(ask.DecideApproval); got.status != 303 || d.Approve || d.Note != "no" || q.who.Actor != "mem_owner" {
		t.Errorf("%+v: %+v", got, q)
	}
	h.wait(aWaiting(`{}`))
	h.mu.Lock()
	h.approvals = h.approvals[1:]
	h.mu.Unlock()
	got = h.submit(t, "/approvals/apr_1/decide", h.base, url.Values{"digest": {"sha256:5f0c3b"}, "decision": {"approve_for_run"}}, cookie)
	q, _ = h.last("approval_decide")
	if d := q.body.(ask.DecideApproval); got.status != 303 || !d.Approve || !d.ForRun {
		t.Errorf("%+v: %+v", got, q)
	}
	h.mu.Lock()
	h.approvals[0].State = "denied"
	h.mu.Unlock()
	if got := h.browse(t, "/approvals", cookie); !strings.Contains(got.body, "Nothing waits") || !strings.Contains(got.body, "denied") {
		t.Error(got.body)
	}
	large := url.Values{"digest": {"sha256:5f0c3b"}, "decision": {"deny"}, "note": {strings.Repeat("x", 40<<10)}}
	if got := h.submit(t, "/approvals/apr_1/decide", h.base, large, cookie); got.status != 413 {
		t.Error(got.status)
	}
}

// What comes in while somebody reads comes below: it puts no other call's button under their hand.
func TestNewApprovalsComeLast(t *testing.T) {
	h := start(t)
	newest := aWaiting(`{}`)
	newest.Approval = "apr_2"
	h.wait(newest) // approvals lists the newest first
	h.wait(aWaiting(`{}`))
	got := h.browse(t, "/approvals", h.session(t))
	first, second := strings.Index(got.body, `<article id="apr_1"`), strings.Index(got.body, `<article id="apr_2"`)
	if first < 0 || second < first {
		t.Errorf("apr_1 at %d, apr_2 at %d", first, second)
	}
}

// An older page is linked, and does not change by itself.
func TestOlderApprovals(t *testing.T) {
	h := start(t)
	h.wait(aWaiting(`{}`))
	h.mu.Lock()
	h.next = "41"
	h.mu.Unlock()
	cookie := h.session(t)
	if got := h.browse(t, "/approvals", cookie); !strings.Contains(got.body, `href="/approvals?before=41"`) || !strings.Contains(got.body, `connect="/approvals/live"`) {
		t.Error(got.body)
	}
	got := h.browse(t, "/approvals?before=41", cookie)
	if q, _ := h.last("approval_list"); q.body.(ask.ListApprovals).Before != "41" || got.status != 200 || strings.Contains(got.body, "/approvals/live") {
		t.Errorf("%+v: %s", q, got.body)
	}
}

// The page of one approval offers its arguments for editing; what comes back is what they meant, and what changed is
// shown with both versions.
func TestEditInTheConsole(t *testing.T) {
	h := start(t)
	waits := aWaiting(`{"owner":"acme","repo":"web","body":"one\ntwo \u003cb\u003e \u202e\u2028x"}`)
	waits.Body.Input = json.RawMessage(`{"inputResponses":{"it":{"action":"accept","content":{"name":"\u003cscript>\u202eada"}}}}`)
	h.wait(waits)
	cookie := h.session(t)
	got := h.browse(t, "/approvals/apr_1", cookie)
	checkInert(t, "the form", got.body)
	for _, want := range []string{`name="digest" value="sha256:5f0c3b"`, `two &lt;b&gt; \u202e\u2028x`, `for="edit-args"`, "What it answers its server", `&lt;script&gt;`, "ada"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
	edit := url.Values{"digest": {"sha256:5f0c3b"}, "args": {`{"owner":"acme","repo":"web","body":"one\n2 <script>"}`}, "note": {"shorter"}}
	if got := h.submit(t, "/approvals/apr_1/edit", "https://evil.example", edit, cookie); got.status != 403 {
		t.Errorf("from another site: %+v", got)
	}
	got = h.submit(t, "/approvals/apr_1/edit", h.base, edit, cookie)
	q, _ := h.last("approval_edit")
	if e := q.body.(ask.EditApproval); got.status != 303 || got.header.Get("Location") != "/approvals/apr_1" || e.Note != "shorter" || string(e.Args) != edit.Get("args") && !strings.Contains(string(e.Args), "script") {
		t.Errorf("%+v: %+v", got, q)
	}
	for _, path := range []string{"/approvals/apr_1", "/approvals"} {
		got = h.browse(t, path, cookie)
		checkInert(t, path, got.body)
		for _, want := range []string{"mem_owner", `<del><span class="sign">- </span>two &lt;b&gt; \u{202E}\u{2028}x</del>`, `<ins><span class="sign">+ </span>2 &lt;script&gt;</ins>`, `<span class="same">one</span>`, `value="sha256:5f0c3b&#43;"`} {
			if !strings.Contains(got.body, want) {
				t.Errorf("%s has no %s in %s", path, want, got.body)
			}
		}
	}
	for name, c := range map[string]struct {
		form url.Values
		want int
	}{
		"an old page":          {edit, 409},
		"no JSON":              {url.Values{"digest": {"sha256:5f0c3b+"}, "args": {`{"a":`}}, 400},
		"a very large form":    {url.Values{"digest": {"sha256:5f0c3b+"}, "args": {`{"a":"` + strings.Repeat("x", 1<<20) + `"}`}}, 413},
		"nothing to put it in": {url.Values{}, 400},
	} {
		if got := h.submit(t, "/approvals/apr_1/edit", h.base, c.form, cookie); got.status != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := h.browse(t, "/approvals/apr_none", cookie); got.status != 404 {
		t.Error(got)
	}
}

func TestArgumentsNamedTwiceAreShownAsTheyAre(t *testing.T) {
	h := start(t)
	h.wait(aWaiting(`{"owner":"acme","repo":"web","repo":"secrets"}`))
	got := h.browse(t, "/approvals", h.session(t))
	if strings.Contains(got.body, "acme/web") || !strings.Contains(got.body, "secrets") || !strings.Contains(got.body, "<details open>") {
		t.Error(got.body)
	}
}

// Who may not grant is not offered an approval for the rest of the run.
func TestApproversAreNotOfferedTheRun(t *testing.T) {
	h := start(t)
	h.wait(aWaiting(`{}`))
	if got := h.browse(t, "/approvals", h.session(t)); !strings.Contains(got.body, "approve_for_run") {
		t.Error("an owner is not offered it")
	}
	h.owner = h.token(t, auth.MainTenant, member.Approver, time.Time{})
	if got := h.browse(t, "/approvals", h.session(t)); strings.Contains(got.body, "approve_for_run") || !strings.Contains(got.body, `value="approve"`) {
		t.Error(got.body)
	}
}

func TestAuditorsSeeAndDoNotDecide(t *testing.T) {
	h := start(t)
	h.wait(aWaiting(`{}`))
	h.owner = h.token(t, auth.MainTenant, member.Auditor, time.Time{})
	cookie := h.session(t)
	if got := h.browse(t, "/approvals", cookie); got.status != 200 || strings.Contains(got.body, `value="approve"`) {
		t.Error(got)
	}
	if got := h.browse(t, "/approvals/apr_1", cookie); got.status != 200 || strings.Contains(got.body, "<textarea") {
		t.Error(got)
	}
	for _, path := range []string{"/approvals/apr_1/decide", "/approvals/apr_1/edit", "/runs/run_1/cancel"} {
		if got := h.submit(t, path, h.base, url.Values{"digest": {"sha256:5f0c3b"}, "decision": {"approve"}}, cookie); got.status != 403 {
			t.Error(got)
		}
	}
}

func TestListsAreRedrawnWhenSomethingHappens(t *testing.T) {
	h := start(t)
	read, _ := h.open(t, "/approvals/live")
	if m := read(); !strings.Contains(m.data, "Nothing waits") {
		t.Fatalf("%+v", m)
	}
	h.wait(aWaiting(`{}`))
	h.record(t, "run_1", "service:approvals", approval.Requested{Approval: "apr_1", Run: "run_1"})
	if m := read(); !strings.Contains(m.data, "apr_1") || m.id == "" {
		t.Fatalf("%+v", m)
	}
}
