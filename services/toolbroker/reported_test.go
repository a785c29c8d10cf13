package toolbroker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
)

// TestReported runs the tests that keep faults out of here which others were told of, by the report.
func TestReported(t *testing.T) {
	for _, r := range []struct {
		report string
		test   func(*testing.T)
	}{
		{"obot-platform/obot#3300 calls after a revocation", testRevoked},
		{"stacklok/toolhive#5827 a denial is an outcome of its own", testRefused},
		{"IBM/mcp-context-forge#1078 a call runs with its own tenant's credential", testEachTenantsCredential},
		{"IBM/mcp-context-forge#2055 and in its own session", testEachTenantsCredential},
		{"Kuadrant/mcp-gateway#710 a tool's error is not a success", testToolError},
	} {
		t.Run(r.report, r.test)
	}
}

// tenantsServer is an MCP server that notes which credentials each session is used with.
type tenantsServer struct {
	*httptest.Server
	mu       sync.Mutex
	sessions map[string]map[string]bool // credentials, by session
}

func startTenantsServer(t *testing.T) *tenantsServer {
	s := &tenantsServer{sessions: map[string]map[string]bool{}}
	server := mcp.NewServer(&mcp.Implementation{Name: "tickets", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Extra.Header.Get("Authorization")}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "fail"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no such ticket"}}}, nil, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if session := r.Header.Get("Mcp-Session-Id"); session != "" {
			s.mu.Lock()
			if s.sessions[session] == nil {
				s.sessions[session] = map[string]bool{}
			}
			s.sessions[session][r.Header.Get("Authorization")] = true
			s.mu.Unlock()
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
		hangUp(s.Server)
	})
	return s
}

// connect gives a tenant an agent that may call every tool of the server, over a connection with a credential of its own.
func (h *house) connect(t *testing.T, tenant id.Tenant, server *tenantsServer, credential string) {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	h.Say(schemas.Gateway, eventlog.Draft{Tenant: tenant, Key: "agt_a", Event: agent.Defined{Agent: "agt_a", Hosting: agent.Hosted}})
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Tenant: tenant, Key: "grt_all", Event: grant.Created{Grant: "grt_all", Agent: "agt_a", Approval: grant.Never,
		Selector: grant.Selector{Tool: "tickets.*"}}}))
	if err := h.ask("connection_define", rpc.Caller{Tenant: tenant, Actor: "mem_owner", Role: string(member.Owner)}, ask.DefineConnection{Credential: credential,
		Connection: connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: server.URL, Private: []string{u.Host}}}); err != nil {
		t.Fatal(err)
	}
	_, listed := servicekit.Await(h.Kit, 1, func(l connection.Listed) bool { return l.Connection == "con_tickets" })
	h.heard(listed.Seq)
}

func (h *house) requestOf(tenant id.Tenant, c id.Call, tool string) {
	h.t.Helper()
	args := json.RawMessage(`{}`)
	h.Say(schemas.Agentloop, eventlog.Draft{Tenant: tenant, Key: string(run1), Event: call.Requested{Call: c, Run: run1, Agent: "agt_a", Tool: tool,
		ArgsDigest: permit.Digest(args), Effect: string(c), NotAfter: time.Now().Add(time.Minute), Body: call.Args{Args: args}}})
}

// Two tenants call their words for the same server at once: each with its own credential, in a session that no other's
// credential is ever used in.
func testEachTenantsCredential(t *testing.T) {
	h := start(t)
	server := startTenantsServer(t)
	h.connect(t, "tnt_red", server, "red")
	h.connect(t, "tnt_blue", server, "blue")
	for _, tenant := range []id.Tenant{"tnt_red", "tnt_blue"} { // listed for both
		servicekit.Await(h.Kit, 2, func(l connection.Listed) bool { return l.Connection == "con_tickets" })
		h.requestOf(tenant, "call_first", "tickets.whoami")
	}
	const calls = 20
	for n := range calls {
		h.requestOf("tnt_red", id.Call(fmt.Sprint("call_red", n)), "tickets.whoami")
		h.requestOf("tnt_blue", id.Call(fmt.Sprint("call_blue", n)), "tickets.whoami")
	}
	for n := range calls {
		for _, whose := range []string{"red", "blue"} {
			if got, _ := await[call.Finished](h, id.Call(fmt.Sprint("call_", whose, n))); string(got.Body.Result) != `{"content":[{"type":"text","text":"Bearer `+whose+`"}]}` {
				t.Errorf("%s: %s", whose, got.Body.Result)
			}
		}
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if len(server.sessions) < 2 {
		t.Errorf("sessions: %v", server.sessions)
	}
	for session, credentials := range server.sessions {
		if len(credentials) != 1 {
			t.Errorf("session %s is used with %v", session, credentials)
		}
	}
}

func testToolError(t *testing.T) {
	h := start(t)
	h.connect(t, servicekit.Tenant, startTenantsServer(t), "red")
	h.requestOf(servicekit.Tenant, "call_1", "tickets.fail")
	if got, _ := await[call.Finished](h, "call_1"); !got.ToolError {
		t.Errorf("%+v", got)
	}
}
