package toolbroker_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// serveMCP serves a real MCP server at an address of its own.
func (h *house) serveMCP(server *mcp.Server) (at string, stop func()) {
	h.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	serving := &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = serving.Serve(l) }()
	stop = func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
		_ = serving.Close()
		<-ended
	}
	h.t.Cleanup(stop)
	return l.Addr().String(), stop
}

// connectMCP serves a real MCP server at an address of its own and connects it, with a grant for the agent.
func (h *house) connectMCP(name string, server *mcp.Server) (stop func()) {
	h.t.Helper()
	at, stop := h.serveMCP(server)
	def := connection.Defined{Connection: id.Connection("con_" + name), Type: connection.MCP, URL: "http://" + at, Private: []string{at}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
		h.t.Fatal(err)
	}
	_, listed := servicekit.Await(h.Kit, 1, func(ev connection.Listed) bool { return ev.Connection == def.Connection })
	h.heard(listed.Seq)
	g := id.Grant("grt_" + name)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: string(g), Event: grant.Created{Grant: g, Agent: "agt_a", Approval: grant.Never, Tainted: true, Selector: grant.Selector{Tool: name + ".*"}}}))
	return stop
}

// hangUp closes a server that the broker listens to, and would listen to again: it lives longer than the server.
func hangUp(server *httptest.Server) {
	_ = server.Listener.Close()
	server.CloseClientConnections()
	server.Close()
}

// offering is a server of one tool.
func offering(run func(context.Context) error) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "do", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(ctx context.Context, _ *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, run(ctx)
	})
	return server
}

// Of three servers, one hangs, one is gone and one is fine: calls of the last do not notice, and its tools stay.
func TestOneServerDelaysNoOther(t *testing.T) {
	t.Run("agentgateway/agentgateway#1266 one dead backend leaves the others' tools", func(t *testing.T) {
		h := start(t)
		release := make(chan struct{})
		hangs := offering(func(ctx context.Context) error {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		})
		h.connectMCP("hangs", hangs)
		die := h.connectMCP("gone", offering(func(context.Context) error { return nil }))
		h.connectMCP("fine", offering(func(context.Context) error { return nil }))
		die()
		const each = 64
		for i := range each {
			h.request(id.Call(fmt.Sprint("call_h", i)), []string{"hangs.do", "gone.do", "fine.do"}[min(i%4, 2)], `{}`, nil)
		}
		gone := 0
		for i := range each {
			c := id.Call(fmt.Sprint("call_h", i))
			switch min(i%4, 2) {
			case 1:
				failed, _ := await[call.Failed](h, c)
				if failed.Code != string(problem.Upstream) && failed.Code != string(problem.Unavailable) {
					t.Errorf("%+v", failed)
				}
				if strings.Contains(failed.Message, "nothing was sent") {
					gone++
				}
			case 2:
				if done, _ := await[call.Finished](h, c); done.ToolError {
					t.Errorf("%+v", done)
				}
			}
		}
		if gone == 0 {
			t.Error("the server that is gone is asked for every call")
		}
		// All the while, nothing of the one that hangs has ended.
		for i := 0; i < each; i += 4 {
			if kinds := fmt.Sprint(h.kinds(id.Call(fmt.Sprint("call_h", i)))); strings.Contains(kinds, "finished") || strings.Contains(kinds, "failed") {
				t.Errorf("call %d of the one that hangs: %s", i, kinds)
			}
		}
		var tools []string
		for _, e := range h.Events(schemas.Control, "connection.listed") {
			if ev, err := eventlog.Decode[connection.Listed](e); err == nil {
				tools = append(tools, fmt.Sprint(ev.Connection, len(ev.Body.Tools)))
			}
		}
		if got := strings.Join(tools, " "); !strings.Contains(got, "con_gone1") || strings.Contains(got, "con_gone0") || !strings.Contains(got, "con_fine1") {
			t.Errorf("listed: %s", got)
		}
		close(release)
		buskit.Eventually(t, "those that hung end", func() bool {
			for i := 0; i < each; i += 4 {
				if !strings.Contains(fmt.Sprint(h.kinds(id.Call(fmt.Sprint("call_h", i)))), "finished") {
					return false
				}
			}
			return true
		})
	})
}
