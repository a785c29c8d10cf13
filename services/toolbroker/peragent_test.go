package toolbroker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/oauthkit"
)

// mcp-context-forge#1078: one caller's call was made with another's token. mcp-context-forge#2055: callers shared a session.
// forge#380: an account that was disconnected was used for an hour.
func TestEachAgentHasItsOwnAccount(t *testing.T) {
	h := start(t)
	server := oauthkit.Start(t)
	def := connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: server.URL(), Private: server.Private(),
		OAuth: connection.OAuth{Flow: connection.AuthorizationCode, PerAgent: true}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Fatal(err)
	}
	for _, a := range []id.Agent{"agt_b", "agt_c"} {
		h.Say(schemas.Gateway, eventlog.Draft{Key: string(a), Event: agent.Defined{Agent: a, Hosting: agent.External}})
	}
	for _, a := range []id.Agent{"agt_a", "agt_b", "agt_c"} {
		name := id.Grant("grt_" + id.Name(a))
		h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: string(name), Event: grant.Created{Grant: name, Agent: a, Approval: grant.Never, Selector: grant.Selector{Tool: "tickets.echo"}, Tainted: true}}))
	}
	login := func(a id.Agent) {
		t.Helper()
		begun, err := rpc.Ask[ask.LoginBegun](t.Context(), h.Conn(t, string(schemas.Gateway)), schemas.Toolbroker, "login_begin", servicekit.Owner(),
			ask.BeginLogin{Connection: "con_tickets", Agent: a, Redirect: "http://127.0.0.1:8080/oauth/callback"})
		if err != nil {
			t.Fatal(err)
		}
		back := oauthkit.Browse(t, begun.URL)
		if err := h.ask("login_finish", servicekit.Owner(), ask.FinishLogin{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss")}); err != nil {
			t.Fatal(err)
		}
		servicekit.Await(h.Kit, 1, func(ev connection.LoginChanged) bool {
			return ev.Attempt == begun.Attempt && ev.Agent == a && !ev.Failed
		})
	}
	login("") // which lists the tools
	_, listed := servicekit.Await(h.Kit, 1, func(ev connection.Listed) bool { return ev.Connection == "con_tickets" })
	h.heard(listed.Seq)
	shared := server.Used() // also by the stream that hears of changes, which may begin again
	login("agt_a")
	login("agt_b")
	server.Used()
	used := func() []string {
		return slices.DeleteFunc(server.Used(), func(token string) bool { return slices.Contains(shared, token) })
	}
	as := func(a id.Agent) func(*call.Requested) { return func(r *call.Requested) { r.Agent = a } }
	h.request("call_a", "tickets.echo", `{"say":"a"}`, as("agt_a"))
	await[call.Finished](h, "call_a")
	first := used()
	h.request("call_b", "tickets.echo", `{"say":"b"}`, as("agt_b"))
	await[call.Finished](h, "call_b")
	second := used()
	if len(first) != 1 || len(second) != 1 || first[0] == second[0] {
		t.Errorf("the calls of two agents were made with %q and %q", first, second)
	}
	h.request("call_c", "tickets.echo", `{"say":"c"}`, as("agt_c"))
	if failed, _ := await[call.Failed](h, "call_c"); failed.Code != string(problem.Unauthenticated) || !strings.Contains(failed.Message, "connections login tickets --agent c") {
		t.Errorf("an agent without an account: %+v", failed)
	}
	if tokens := used(); len(tokens) != 0 {
		t.Errorf("it was asked with %q", tokens)
	}
	for name, q := range map[string]ask.BeginLogin{
		"no such agent":      {Connection: "con_tickets", Agent: "agt_none", Redirect: "http://127.0.0.1:8080/oauth/callback"},
		"one login for all":  {Connection: "con_github", Agent: "agt_a", Redirect: "http://127.0.0.1:8080/oauth/callback"},
		"an agent by a path": {Connection: "con_tickets", Agent: "agt_../x", Redirect: "http://127.0.0.1:8080/oauth/callback"},
	} {
		if err := h.ask("login_begin", servicekit.Owner(), q); err == nil {
			t.Errorf("%s: a login begins", name)
		}
	}
	// The agent is removed: its account is ended, and nobody else's.
	h.heard(h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_b", Event: agent.Defined{Agent: "agt_b", Hosting: agent.External, Removed: true}}))
	buskit.Eventually(t, "the removed agent's token is revoked", func() bool { return len(server.Revoked()) > 0 })
	h.request("call_again", "tickets.echo", `{"say":"a"}`, as("agt_a"))
	await[call.Finished](h, "call_again")
	def.Removed = true
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "all tokens are revoked", func() bool { return len(server.Revoked()) >= 3 })
}
