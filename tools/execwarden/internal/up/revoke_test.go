package up

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/sample"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// With 64 calls of a run in flight, one revocation stops them all: those that read are cancelled, of those that write
// nobody knows, none starts after it, and the ledger has each with its end.
func TestRevokeWith64InFlight(t *testing.T) {
	w := newWorld(t)
	var hanging, began atomic.Int64
	release := make(chan struct{})
	hang := func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		began.Add(1)
		hanging.Add(1)
		defer hanging.Add(-1)
		<-release
		return &mcp.CallToolResult{}, nil, nil
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "slow", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "read", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, hang)
	mcp.AddTool(server, &mcp.Tool{Name: "write"}, hang)
	slow := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() { close(release); slow.CloseClientConnections(); slow.Close() })

	const each = 32
	var turn scriptmodel.Turn
	for range each {
		turn.Calls = append(turn.Calls, scriptmodel.Call{Tool: "slow__read"}, scriptmodel.Call{Tool: "slow__write"})
	}
	model := sample.NewModel(scriptmodel.Script{Model: "scripted-slow", Turns: []scriptmodel.Turn{turn, {Calls: []scriptmodel.Call{{Tool: "slow__read"}}}, {Text: "done"}}})
	if err := model.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	for _, err := range []error{
		w.PutConnection(t.Context(), connection.Defined{Connection: "con_slow", Type: connection.MCP, URL: slow.URL, Private: []string{hostport(slow.URL)}, Trusted: true}, ""),
		w.PutAgent(t.Context(), agent.Defined{Agent: "agt_caller", Hosting: agent.Hosted, Body: agent.Body{Instructions: "Call."},
			Model: agent.Model{Protocol: "openai", URL: model.URL(), Name: "scripted-slow", Private: []string{hostport(model.URL())}}}, ""),
		w.PutGrant(t.Context(), grant.Created{Grant: "grt_slow", Agent: "agt_caller", Approval: grant.Never, Selector: grant.Selector{Tool: "slow.*"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	buskit.Eventually(t, "the tools are listed", func() bool {
		all, err := w.Connections(t.Context())
		return err == nil && len(all) == 1 && len(all[0].Tools) == 2
	})
	if _, err := w.StartRun(t.Context(), "caller", "go"); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "64 calls are in flight", func() bool { return hanging.Load() == 2*each })
	done, err := w.Revoke(t.Context(), "slow", "enough")
	if err != nil || done.Heard != 3 || len(done.Fenced) != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	if r := w.ended(); r.State != "completed" {
		t.Errorf("the run ended %s: %s", r.State, r.Message)
	}
	// What it asks for after the revocation is refused, and never begun.
	for kind, want := range map[string]int{"call.requested": 2*each + 1, "call.admitted": 2 * each, "call.cancelled": each, "call.unknown": each, "call.refused": 1, "grant.revoked": 1} {
		page, err := w.Events(t.Context(), client.Filter{Kind: kind}, client.Cursor{})
		if err != nil || len(page.Events) != want {
			t.Errorf("the ledger has %d of %s, want %d, %v", len(page.Events), kind, want, err)
		}
	}
	if began.Load() != 2*each {
		t.Errorf("%d calls began", began.Load())
	}
	if v, err := w.Verify(t.Context()); err != nil || v.Verdict != "verified" {
		t.Errorf("%+v, %v", v, err)
	}
}
