package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

const anAgent = `{"hosting":"hosted","model":{"protocol":"openai","url":"http://127.0.0.1:9/v1","name":"m"},"body":{"instructions":"triage"}}`

func TestAgentIsDefinedListedAndRemoved(t *testing.T) {
	h := start(t)
	put := h.call(t, h.owner, "PUT", "/v1/agents/triage", strings.Replace(anAgent, `{`, `{"model_key":"sk-secret",`, 1))
	if put.status != 200 {
		t.Fatal(put)
	}
	if key, ok := h.last("model_key_set"); !ok || key.body.(ask.SetModelKey).Key != "sk-secret" || key.who.Actor != "mem_owner" || key.who.Tenant != auth.MainTenant {
		t.Fatalf("%+v", key)
	}
	var list struct{ Agents []agent.Defined }
	h.call(t, h.owner, "GET", "/v1/agents", "").decode(t, &list)
	if len(list.Agents) != 1 || list.Agents[0].Agent != "agt_triage" || list.Agents[0].Body.Instructions != "triage" {
		t.Fatalf("%+v", list)
	}
	for e, err := range h.log.Read(t.Context(), schemas.Control, "ew.v1.*.agent.>", 1) {
		if err != nil || strings.Contains(string(e.Raw), "sk-secret") || e.Envelope.Actor != "mem_owner" {
			t.Fatalf("%v: %s", err, e.Raw)
		}
	}
	if gone := h.call(t, h.owner, "DELETE", "/v1/agents/triage", ""); gone.status != 200 {
		t.Fatal(gone)
	}
	if again := h.call(t, h.owner, "DELETE", "/v1/agents/triage", ""); again.status != 404 {
		t.Fatal(again)
	}
	h.call(t, h.owner, "GET", "/v1/agents", "").decode(t, &list)
	if len(list.Agents) != 0 {
		t.Fatalf("%+v", list)
	}
}

func TestWhatOthersOwnIsAskedOfThem(t *testing.T) {
	h := start(t)
	h.wait(aWaiting(`{}`))
	h.record(t, "run_1", "mem_owner", run.Created{Run: "run_1"})
	for _, c := range []struct{ method, path, body, asks string }{
		{"PUT", "/v1/connections/github", `{"type":"github","url":"https://api.github.com","credential":"ghp_x"}`, "connection_define"},
		{"PUT", "/v1/grants/comments", `{"agent":"triage","selector":{"tool":"github.*"},"approval":"always"}`, "grant_create"},
		{"POST", "/v1/grants/comments/revoke", `{"reason":"enough"}`, "grant_revoke"},
		{"PUT", "/v1/triggers/issues", `{"hook":"github","events":["issues.opened"],"agent":"agt_triage","prompt":"x"}`, "trigger_define"},
		{"PUT", "/v1/hooks/github", `{"secret":"s"}`, "hook_define"},
		{"PUT", "/v1/targets/oncall", `{"type":"webhook","address":"https://example.com/h","about":["requested"]}`, "target_define"},
		{"POST", "/v1/targets/oncall/test", ``, "target_test"},
		{"PUT", "/v1/environments/box", `{"driver":"docker"}`, "environment_define"},
		{"GET", "/v1/environments", ``, "environment_list"},
		{"DELETE", "/v1/environments/box", ``, "environment_remove"},
		{"POST", "/v1/environments/box/drain", `{"off":true}`, "environment_drain"},
		{"POST", "/v1/environments/box/token", `{"replace":true}`, "enrolment_create"},
		{"POST", "/v1/environments/box/attach", `{"agent":"triage"}`, "volume_attach"},
		{"GET", "/v1/calls/call_1/output?after=7", ``, "output_read"},
		{"POST", "/v1/environments/box/release", `{"revoke":true,"reason":"enough"}`, "volume_release"},
		{"POST", "/v1/environments/box/checkpoint", ``, "volume_checkpoint"},
		{"POST", "/v1/environments/box/restore", `{"volume":"main","checkpoint":3}`, "volume_restore"},
		{"POST", "/v1/environments/box/clone", `{"to":"copy"}`, "volume_clone"},
		{"POST", "/v1/keys/rewrap", `{"service":"agentloop","after":"tnt_a","look":true}`, "keys_rewrap"},
		{"POST", "/v1/keys/renew", `{"service":"agentloop"}`, "keys_renew"},
		{"POST", "/v1/runs", `{"agent":"triage","prompt":"look"}`, "run_start"},
		{"POST", "/v1/agents/triage/scripts", `{"source":"return input.a","input":{"a":1}}`, "run_start"},
		{"POST", "/v1/runs/run_1/cancel", ``, "run_cancel"},
		{"GET", "/v1/runs?limit=5", ``, "runs"},
		{"GET", "/v1/runs/run_1/timeline?after=0:0", ``, "timeline"},
		{"GET", "/v1/approvals?open=true&limit=5&before=41", ``, "approval_list"},
		{"GET", "/v1/approvals/apr_1", ``, "approval_show"},
		{"POST", "/v1/approvals/apr_1/edit", `{"digest":"sha256:5f0c3b","args":{"a":"<b>"}}`, "approval_edit"},
		{"POST", "/v1/approvals/apr_1/decide", `{"digest":"sha256:5f0c3b+","approve":true}`, "approval_decide"},
		{"GET", "/v1/events?after=1:2&kind=call.*", ``, "events"},
		{"POST", "/v1/ledger/verify", ``, "verify"},
		{"GET", "/v1/ledger/position", ``, "position"},
	} {
		got := h.call(t, h.owner, c.method, c.path, c.body)
		if got.status != 200 {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.status, got.body)
		}
		a, ok := h.last(c.asks)
		if !ok || a.who.Actor != "mem_owner" || a.who.Role != "owner" || a.who.Tenant != auth.MainTenant || a.who.Service != schemas.Gateway {
			t.Errorf("%s %s asked %+v", c.method, c.path, a)
		}
	}
	g, _ := h.last("grant_create")
	if q := g.body.(ask.CreateGrant).Grant; q.Grant != "grt_comments" || q.Agent != "agt_triage" || q.Approval != grant.Always {
		t.Errorf("%+v", q)
	}
	c, _ := h.last("connection_define")
	if q := c.body.(ask.DefineConnection); q.Credential != "ghp_x" || q.Connection.Connection != "con_github" || q.Connection.Credential != "" {
		t.Errorf("%+v", q)
	}
	tgt, _ := h.last("target_define")
	if q := tgt.body.(ask.DefineTarget); q.Target.Target != "tgt_oncall" || q.Address != "https://example.com/h" || len(q.Target.About) != 1 {
		t.Errorf("%+v", q)
	}
	if got := h.call(t, h.owner, "DELETE", "/v1/targets/oncall", ""); got.status != 200 {
		t.Error(got)
	}
	tgt, _ = h.last("target_define")
	if q := tgt.body.(ask.DefineTarget); q.Target.Target != "tgt_oncall" || !q.Target.Removed {
		t.Errorf("%+v", q)
	}
	if got := h.call(t, h.owner, "GET", "/v1/targets", ""); got.status != 200 || got.body != `{"targets":[]}` {
		t.Error(got)
	}
	e, _ := h.last("approval_edit")
	if q := e.body.(ask.EditApproval); q.Approval != "apr_1" || q.Digest != "sha256:5f0c3b" || !strings.Contains(string(q.Args), "b") {
		t.Errorf("%+v", q)
	}
	for _, body := range []string{`{"digest":"sha256:5f0c3b"}`, `{"args":{}}`, `{"digest":"d","args":{},"approve":true}`} {
		if got := h.call(t, h.owner, "POST", "/v1/approvals/apr_1/edit", body); got.status != 400 {
			t.Errorf("%s: %+v", body, got)
		}
	}
	// What they refuse comes through as it is.
	if got := h.call(t, h.owner, "POST", "/v1/runs", `{"agent":"nobody","prompt":"x"}`); got.status != 404 || got.header.Get("Content-Type") != "application/problem+json" {
		t.Error(got)
	}
	if got := h.call(t, h.owner, "POST", "/v1/approvals/apr_1/decide", `{"digest":"other","approve":true}`); got.status != 409 {
		t.Error(got)
	}
}

func TestRevokedGrantsAreListedAsSuch(t *testing.T) {
	h := start(t)
	approvals := eventlog.New(h.bus.Conn(t, string(schemas.Approvals)))
	created := grant.Created{Grant: "grt_a", Agent: "agt_a", Selector: grant.Selector{Tool: "github.*"}, Approval: grant.Never}
	seq, err := approvals.AppendAfter(t.Context(), eventlog.Draft{Event: created, Tenant: auth.MainTenant, Key: "grt_a", Actor: "mem_owner"}, 0)
	if err == nil {
		_, err = approvals.AppendAfter(t.Context(), eventlog.Draft{Event: grant.Revoked{Grant: "grt_a", Agent: "agt_a", Reason: "leak"}, Tenant: auth.MainTenant, Key: "grt_a", Actor: "mem_owner"}, seq)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A definition of the gateway's own is answered when this instance has heard it, and so everything before.
	if got := h.call(t, h.owner, "PUT", "/v1/agents/a", anAgent); got.status != 200 {
		t.Fatal(got)
	}
	got := h.call(t, h.owner, "GET", "/v1/grants", "")
	for _, want := range []string{`"state":"revoked"`, `"reason":"leak"`, `"tool":"github.*"`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %s in %s", want, got.body)
		}
	}
}

func TestHostileRequests(t *testing.T) {
	h := start(t)
	h.wait(aWaiting(`{}`))
	auditor := h.token(t, auth.MainTenant, member.Auditor, time.Time{})
	approver := h.token(t, auth.MainTenant, member.Approver, time.Time{})
	stranger := h.token(t, "tnt_other", member.Owner, time.Time{})
	expired := h.token(t, auth.MainTenant, member.Admin, time.Now().Add(-time.Hour))
	unknown := auth.NewToken().Reveal()
	grantBody := `{"agent":"a","selector":{"tool":"x.*"},"approval":"never"}`
	big := `{"prompt":"` + strings.Repeat("x", 1<<20) + `"}`

	cases := []struct {
		name, token, method, path, body string
		status                          int
		code                            string
	}{
		{"no token", "", "GET", "/v1/runs", "", 401, "unauthenticated"},
		{"no token for a write", "", "PUT", "/v1/agents/a", anAgent, 401, "unauthenticated"},
		{"not a token", "ewt_short", "GET", "/v1/runs", "", 401, "unauthenticated"},
		{"keys without being an owner", approver, "POST", "/v1/keys/renew", `{"service":"agentloop"}`, 403, "denied"},
		{"the deployment's keys from another tenant", stranger, "POST", "/v1/keys/rewrap", `{"service":"agentloop"}`, 403, "denied"},
		{"master keys from another tenant", stranger, "GET", "/v1/keys", "", 403, "denied"},
		{"master keys without being an owner", approver, "GET", "/v1/keys", "", 403, "denied"},
		{"keys of a service that has none", h.owner, "POST", "/v1/keys/rewrap", `{"service":"ledger"}`, 400, "invalid"},
		{"keys of another subject", h.owner, "POST", "/v1/keys/renew", `{"service":"agentloop.keys_renew.*"}`, 400, "invalid"},
		{"keys after no tenant", h.owner, "POST", "/v1/keys/rewrap", `{"service":"agentloop","after":"*"}`, 400, "invalid"},
		{"unknown token", unknown, "GET", "/v1/runs", "", 401, "unauthenticated"},
		{"expired token", expired, "GET", "/v1/runs", "", 401, "unauthenticated"},
		{"nowhere", h.owner, "GET", "/v1/nothing", "", 404, "not_found"},
		{"wrong method", h.owner, "POST", "/v1/agents", "", 404, "not_found"},
		{"oversize", h.owner, "POST", "/v1/runs", big, 413, "too_large"},
		{"duplicate query", h.owner, "GET", "/v1/runs?limit=1&limit=2", "", 400, "invalid"},
		{"unknown query", h.owner, "GET", "/v1/runs?limti=1", "", 400, "invalid"},
		{"limit too large", h.owner, "GET", "/v1/runs?limit=201", "", 400, "invalid"},
		{"limit no number", h.owner, "GET", "/v1/events?limit=-1", "", 400, "invalid"},
		{"bad cursor", h.owner, "GET", "/v1/events?after=12", "", 400, "invalid"},
		{"bad cursor in a tail", h.owner, "GET", "/v1/events/tail?after=a:b", "", 400, "invalid"},
		{"bad start of a tail", h.owner, "GET", "/v1/events/tail?from=yesterday", "", 400, "invalid"},
		{"bad kind", h.owner, "GET", "/v1/events?kind=call'--", "", 400, "invalid"},
		{"bad actor", h.owner, "GET", "/v1/events?actor=%00", "", 400, "invalid"},
		{"bad run filter", h.owner, "GET", "/v1/events?run=agt_a", "", 400, "invalid"},
		{"bad run id", h.owner, "GET", "/v1/runs/RUN_1/timeline", "", 400, "invalid"},
		{"run id with a wildcard", h.owner, "POST", "/v1/runs/run_*/cancel", "", 400, "invalid"},
		{"run id with a dot", h.owner, "GET", "/v1/runs/run_a.b/timeline", "", 400, "invalid"},
		{"bad open", h.owner, "GET", "/v1/approvals?open=maybe", "", 400, "invalid"},
		{"bad approval id", h.owner, "POST", "/v1/approvals/run_1/decide", `{"digest":"d","approve":true}`, 400, "invalid"},
		{"decision without a word", h.owner, "POST", "/v1/approvals/apr_1/decide", `{"digest":"d"}`, 400, "invalid"},
		{"decision without a digest", h.owner, "POST", "/v1/approvals/apr_1/decide", `{"approve":true}`, 400, "invalid"},
		{"hook without a secret", h.owner, "PUT", "/v1/hooks/github", `{"secret":""}`, 400, "invalid"},
		{"run without a prompt", h.owner, "POST", "/v1/runs", `{"agent":"a"}`, 400, "invalid"},
		{"run without an agent", h.owner, "POST", "/v1/runs", `{"prompt":"a"}`, 400, "invalid"},
		{"agent that is another", h.owner, "PUT", "/v1/agents/a", `{"agent":"agt_b","hosting":"external","body":{"instructions":""}}`, 400, "invalid"},
		{"agent without hosting", h.owner, "PUT", "/v1/agents/a", `{"body":{"instructions":""}}`, 400, "invalid"},
		{"agent removed by definition", h.owner, "PUT", "/v1/agents/a", `{"hosting":"external","removed":true,"body":{"instructions":""}}`, 400, "invalid"},
		{"agent with a password in its URL", h.owner, "PUT", "/v1/agents/a", strings.Replace(anAgent, "127", "u:p@127", 1), 400, "invalid"},
		{"auditor configures", auditor, "PUT", "/v1/agents/a", anAgent, 403, "denied"},
		{"auditor decides", auditor, "POST", "/v1/approvals/apr_1/decide", `{"digest":"d","approve":true}`, 403, "denied"},
		{"auditor cancels", auditor, "POST", "/v1/runs/run_1/cancel", "", 403, "denied"},
		{"approver grants", approver, "PUT", "/v1/grants/a", grantBody, 403, "denied"},
		{"approver revokes", approver, "POST", "/v1/grants/a/revoke", "", 403, "denied"},
		{"approver starts a run", approver, "POST", "/v1/runs", `{"agent":"a","prompt":"x"}`, 403, "denied"},
	}
	// What every endpoint that takes a body has to refuse.
	for _, at := range []struct{ method, path string }{
		{"PUT", "/v1/agents/a"}, {"PUT", "/v1/connections/a"}, {"PUT", "/v1/grants/a"}, {"POST", "/v1/grants/a/revoke"}, {"PUT", "/v1/triggers/a"},
		{"PUT", "/v1/hooks/a"}, {"PUT", "/v1/environments/a"}, {"POST", "/v1/environments/a/token"}, {"POST", "/v1/environments/a/attach"}, {"POST", "/v1/environments/a/release"}, {"POST", "/v1/runs"}, {"POST", "/v1/runs/run_1/cancel"},
		{"POST", "/v1/approvals/apr_1/decide"}, {"POST", "/v1/logins"}, {"POST", "/v1/ledger/verify"},
	} {
		for what, body := range map[string]string{
			"half": `{"a`, "array": `[]`, "text": `"x"`, "more": `{} {}`, "unknown field": `{"unheard_of":1}`, "deep": strings.Repeat(`{"a":`, 20000),
		} {
			cases = append(cases, struct {
				name, token, method, path, body string
				status                          int
				code                            string
			}{at.path + " " + what, h.owner, at.method, at.path, body, 400, "invalid"})
		}
	}
	for _, path := range []string{"/v1/agents/", "/v1/connections/", "/v1/grants/", "/v1/triggers/", "/v1/hooks/", "/v1/environments/"} {
		for _, name := range []string{"A", "a_b", "a.b", "%2e%2e", "a%2Fb", "*", "%3E", "-a", strings.Repeat("a", 49)} {
			cases = append(cases, struct {
				name, token, method, path, body string
				status                          int
				code                            string
			}{path + name, h.owner, "PUT", path + name, "{}", 400, "invalid"})
		}
	}
	for _, c := range cases {
		got := h.call(t, c.token, c.method, c.path, c.body)
		if got.status != c.status || !strings.Contains(got.body, `"code":"`+c.code+`"`) || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s %s: %d %.300s", c.name, c.method, c.path, got.status, got.body)
		}
		if c.status == 401 && got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", c.name)
		}
	}
	if _, some := h.last("run_start"); some {
		t.Error("a refused request reached another service")
	}
	noJSON := h.send(t, "PUT", "/v1/hooks/a", `{"secret":"x"}`, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+h.owner)
		r.Header.Set("Content-Type", "text/plain")
	})
	if noJSON.status != 400 {
		t.Error(noJSON)
	}
	badHost := h.send(t, "GET", "/v1/whoami", "", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+h.owner)
		r.Host = "evil.example"
	})
	if badHost.status != 403 {
		t.Error(badHost)
	}
}

func TestSecretsDoNotComeBackInProblems(t *testing.T) {
	h := start(t)
	for _, body := range []string{`{"secret":"hunter2",}`, `{"secret":["hunter2"]}`, `{"secret":"hunter2"} x`, `{"hunter2`} {
		if got := h.call(t, h.owner, "PUT", "/v1/hooks/a", body); got.status != 400 || strings.Contains(got.body, "hunter2") {
			t.Error(got)
		}
	}
}

func TestTenantsAreApart(t *testing.T) {
	h := start(t)
	if got := h.call(t, h.owner, "PUT", "/v1/agents/ours", anAgent); got.status != 200 {
		t.Fatal(got)
	}
	other := h.token(t, "tnt_other", member.Owner, time.Time{})
	if got := h.call(t, other, "GET", "/v1/agents", ""); got.body != `{"agents":[]}` {
		t.Error(got)
	}
	if got := h.call(t, other, "DELETE", "/v1/agents/ours", ""); got.status != 404 {
		t.Error(got)
	}
	h.call(t, other, "GET", "/v1/runs/run_1/timeline", "")
	if q, _ := h.last("timeline"); q.who.Tenant != "tnt_other" {
		t.Errorf("%+v", q)
	}
}

func TestRoleIsTheNarrowerOfTokenAndMember(t *testing.T) {
	h := start(t)
	token := h.token(t, auth.MainTenant, member.Admin, time.Time{})
	h.member(t, auth.MainTenant, "mem_admin", member.Auditor)
	if got := h.call(t, h.owner, "PUT", "/v1/agents/a", anAgent); got.status != 200 { // heard after the change
		t.Fatal(got)
	}
	if got := h.call(t, token, "PUT", "/v1/agents/a", anAgent); got.status != 403 {
		t.Error(got)
	}
}
