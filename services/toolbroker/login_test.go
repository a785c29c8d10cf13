package toolbroker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/toolbroker/oauthkit"
)

// A member logs in to a connection, its tools are listed, calls go through; when it is removed, nothing of it is left.
func TestLoginToAConnection(t *testing.T) {
	h := start(t)
	server := oauthkit.Start(t)
	gateway := h.Conn(t, string(schemas.Gateway))
	def := connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: server.URL(), Private: server.Private(), OAuth: connection.OAuth{Flow: connection.AuthorizationCode}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Fatal(err)
	}
	begin := ask.BeginLogin{Connection: "con_tickets", Redirect: "http://127.0.0.1:8080/oauth/callback"}
	if err := h.ask("login_begin", servicekit.Owner(), begin); err != nil { // at once
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		who  rpc.Caller
		q    ask.BeginLogin
		code problem.Code
	}{
		"an approver":            {servicekit.Caller("mem_a", member.Approver), begin, problem.Denied},
		"a service":              {servicekit.Caller("service:gateway", member.Owner), begin, problem.Denied},
		"a connection like that": {servicekit.Owner(), ask.BeginLogin{Connection: "con_none", Redirect: begin.Redirect}, problem.NotFound},
		"one without OAuth":      {servicekit.Owner(), ask.BeginLogin{Connection: "con_github", Redirect: begin.Redirect}, problem.Invalid},
		"back to a script":       {servicekit.Owner(), ask.BeginLogin{Connection: "con_tickets", Redirect: "javascript:alert(1)"}, problem.Invalid},
		"of another tenant":      {rpc.Caller{Tenant: "tnt_b", Actor: "mem_owner", Role: "owner"}, begin, problem.NotFound},
	} {
		if err := h.ask("login_begin", c.who, c.q); problem.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	begun, err := rpc.Ask[ask.LoginBegun](t.Context(), gateway, schemas.Toolbroker, "login_begin", servicekit.Owner(), begin)
	if err != nil {
		t.Fatal(err)
	}
	back := oauthkit.Browse(t, begun.URL)
	look, err := rpc.Ask[ask.WaitingLogin](t.Context(), gateway, schemas.Toolbroker, "login_look", servicekit.Owner(), ask.LookLogin{State: back.Get("state")})
	if err != nil || look.By != "mem_owner" || look.Connection != "con_tickets" || look.URL != def.URL {
		t.Errorf("%+v, %v", look, err)
	}
	for _, state := range []string{"", "x", "tnt_a.con_tickets", "tnt_a.con_none.x", "tnt_*.con_tickets.x", strings.Repeat("x", 1000)} {
		if err := h.ask("login_finish", servicekit.Owner(), ask.FinishLogin{State: state, Code: back.Get("code")}); err == nil {
			t.Errorf("a login with state %.20q", state)
		}
	}
	finish := ask.FinishLogin{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss")}
	if err := h.ask("login_finish", servicekit.Owner(), finish); err != nil {
		t.Fatal(err)
	}
	if err := h.ask("login_finish", servicekit.Owner(), finish); problem.CodeOf(err) != problem.Expired {
		t.Errorf("the same state again: %v", err)
	}
	if done, at := servicekit.Await(h.Kit, 1, func(ev connection.LoginChanged) bool { return ev.Attempt == begun.Attempt }); done.State != connection.LoggedIn || done.Failed || at.Envelope.Actor != "mem_owner" {
		t.Errorf("%+v by %s", done, at.Envelope.Actor)
	}
	_, listed := servicekit.Await(h.Kit, 1, func(ev connection.Listed) bool { return ev.Connection == "con_tickets" })
	h.heard(listed.Seq)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_echo", Event: grant.Created{Grant: "grt_echo", Agent: "agt_a", Approval: grant.Never, Selector: grant.Selector{Tool: "tickets.echo"}}}))
	h.request("call_1", "tickets.echo", `{"say":"hello"}`, nil)
	if done, _ := await[call.Finished](h, "call_1"); !strings.Contains(string(done.Body.Result), "hello") {
		t.Errorf("%s", done.Body.Result)
	}
	// Keys that rotate take the tokens along.
	if got, err := rpc.Ask[ask.Rewrapped](t.Context(), gateway, schemas.Toolbroker, "keys_renew", servicekit.Owner(), ask.RenewKeys{}); err != nil || got.Resealed != 3 || got.Remaining != 0 {
		t.Errorf("%+v, %v", got, err) // GitHub's token, the login, and the logins that wait
	}
	h.request("call_renewed", "tickets.echo", `{"say":"hello"}`, nil)
	await[call.Finished](h, "call_renewed")
	// A login that the provider ended says so to whoever calls, and in the state.
	server.Expire()
	server.Change(oauthkit.Faults{Revoked: true, Quote: true})
	h.request("call_2", "tickets.echo", `{"say":"hello"}`, nil)
	if failed, _ := await[call.Failed](h, "call_2"); failed.Code != string(problem.Unauthenticated) || !strings.Contains(failed.Message, "execwarden connections login tickets") {
		t.Errorf("%+v", failed)
	}
	servicekit.Await(h.Kit, 1, func(ev connection.LoginChanged) bool {
		return ev.State == connection.LoginNeeded && strings.Contains(ev.Reason, "invalid_grant")
	})
	server.Change(oauthkit.Faults{})
	begun, err = rpc.Ask[ask.LoginBegun](t.Context(), gateway, schemas.Toolbroker, "login_begin", servicekit.Owner(), begin)
	if err != nil {
		t.Fatal(err)
	}
	back = oauthkit.Browse(t, begun.URL)
	if err := h.ask("login_finish", servicekit.Owner(), ask.FinishLogin{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss")}); err != nil {
		t.Fatal(err)
	}
	h.request("call_3", "tickets.echo", `{"say":"hello"}`, nil)
	await[call.Finished](h, "call_3")

	// A login that somebody began who is a member no more is finished by nobody.
	theirs, err := rpc.Ask[ask.LoginBegun](t.Context(), gateway, schemas.Toolbroker, "login_begin", servicekit.Caller("mem_gone", member.Admin), begin)
	if err != nil {
		t.Fatal(err)
	}
	back = oauthkit.Browse(t, theirs.URL)
	h.heard(h.Say(schemas.Gateway, eventlog.Draft{Key: "mem_gone", Event: member.Removed{Member: "mem_gone"}}))
	if err := h.ask("login_finish", servicekit.Owner(), ask.FinishLogin{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss")}); problem.CodeOf(err) != problem.Denied {
		t.Errorf("a login of a removed member: %v", err)
	}
	theirs, err = rpc.Ask[ask.LoginBegun](t.Context(), gateway, schemas.Toolbroker, "login_begin", servicekit.Caller("mem_narrowed", member.Admin), begin)
	if err != nil {
		t.Fatal(err)
	}
	back = oauthkit.Browse(t, theirs.URL)
	h.heard(h.Say(schemas.Gateway, eventlog.Draft{Key: "mem_narrowed", Event: member.Added{Member: "mem_narrowed", Role: member.Approver}}))
	if err := h.ask("login_finish", servicekit.Owner(), ask.FinishLogin{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss")}); problem.CodeOf(err) != problem.Denied {
		t.Errorf("a login of a member who may not configure any more: %v", err)
	}

	def.Removed = true
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Fatal(err)
	}
	servicekit.Await(h.Kit, 1, func(ev connection.LoginChanged) bool { return ev.Reason == "the connection was removed" })
	if got := strings.Join(server.Revoked(), " "); !strings.Contains(got, "access-canary") || !strings.Contains(got, "refresh-canary") {
		t.Errorf("revoked: %q", got)
	}
	kv, err := h.Boot.JS.KeyValue(t.Context(), "secrets")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(t.Context())
	if err != nil || strings.Contains(strings.Join(keys, " "), "con_tickets") {
		t.Errorf("sealed: %v, %v", keys, err)
	}
	h.request("call_4", "tickets.echo", `{"say":"hello"}`, nil)
	if got, _ := await[call.Refused](h, "call_4"); got.Code != string(problem.NotFound) {
		t.Errorf("%+v", got)
	}
	for _, stream := range []schemas.Stream{schemas.Activity, schemas.Control} {
		for _, e := range h.Events(stream) {
			for _, secret := range server.Secrets() {
				if strings.Contains(string(e.Raw), secret) {
					t.Errorf("%s tells %.12s…", e.At, secret)
				}
			}
		}
	}
}

// A credential goes with its connection, and one that the same name is given later stays.
func TestRemovedConnectionHasNoCredential(t *testing.T) {
	h := start(t)
	def := connection.Defined{Connection: "con_github", Type: connection.GitHub, URL: h.github.URL, Removed: true}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Fatal(err)
	}
	kv, err := h.Boot.JS.KeyValue(t.Context(), "secrets")
	if err != nil {
		t.Fatal(err)
	}
	sealed := func() bool {
		keys, err := kv.Keys(t.Context())
		return err == nil && strings.Contains(strings.Join(keys, " "), "s-con_github")
	}
	buskit.Eventually(t, "the credential is deleted", func() bool { return !sealed() })
	def.Removed = false
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Fatal(err)
	}
	if ev, _ := servicekit.Await(h.Kit, 3, func(ev connection.Defined) bool { return ev.Connection == "con_github" }); ev.Credential != "" {
		t.Errorf("it has the credential %s of the one before", ev.Credential)
	}
}

func TestOAuthThatCannotWork(t *testing.T) {
	h := start(t)
	for name, o := range map[string]connection.OAuth{
		"no flow":             {ClientID: "x"},
		"another flow":        {Flow: "implicit"},
		"no client":           {Flow: connection.ClientCredentials},
		"no secret":           {Flow: connection.ClientCredentials, ClientID: "x"},
		"a scope of two":      {Flow: connection.AuthorizationCode, Scopes: []string{"a b"}},
		"a scope with a line": {Flow: connection.AuthorizationCode, Scopes: []string{"a\r\nb"}},
		"a long client":       {Flow: connection.AuthorizationCode, ClientID: strings.Repeat("x", 1001)},
	} {
		def := connection.Defined{Connection: "con_x", Type: connection.MCP, URL: "https://mcp.example.com", OAuth: o}
		if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	def := connection.Defined{Connection: "con_x", Type: connection.GitHub, URL: "https://api.github.com", OAuth: connection.OAuth{Flow: connection.AuthorizationCode}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("GitHub: %v", err)
	}
}

// A connection that is removed while somebody finishes their login is not logged in to for it.
func TestRemovedWhileALoginIsFinished(t *testing.T) {
	h := start(t)
	server := oauthkit.Start(t)
	gateway := h.Conn(t, string(schemas.Gateway))
	def := connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: server.URL(), Private: server.Private(), OAuth: connection.OAuth{Flow: connection.AuthorizationCode}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Fatal(err)
	}
	var begun ask.LoginBegun
	buskit.Eventually(t, "a login begins", func() (ok bool) {
		var err error
		begun, err = rpc.Ask[ask.LoginBegun](t.Context(), gateway, schemas.Toolbroker, "login_begin", servicekit.Owner(), ask.BeginLogin{Connection: "con_tickets", Redirect: "http://127.0.0.1:8080/oauth/callback"})
		return err == nil
	})
	back := oauthkit.Browse(t, begun.URL)
	server.Change(oauthkit.Faults{Slow: 2 * time.Second})
	finished := make(chan error)
	go func() {
		finished <- h.ask("login_finish", servicekit.Owner(), ask.FinishLogin{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss")})
	}()
	buskit.Eventually(t, "the code is being traded", func() bool { return len(server.Asked()) > 0 })
	def.Removed = true
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Error(err)
	}
	servicekit.Await(h.Kit, 1, func(ev connection.LoginChanged) bool { return ev.State == connection.LoginNeeded })
	if err := <-finished; problem.CodeOf(err) != problem.NotFound {
		t.Errorf("finished: %v", err)
	}
	secrets, err := vault.Open(t.Context(), h.Conn(t, string(schemas.Toolbroker)), h.Master)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Get(t.Context(), servicekit.Tenant, "oauth.con_tickets"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("tokens are sealed: %v", err)
	}
	if revoked := strings.Join(server.Revoked(), " "); !strings.Contains(revoked, "refresh-canary") {
		t.Errorf("revoked: %q", revoked)
	}
}
