package toolbroker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
)

// A server that takes its time to list its tools answers when the connection is another server's by then: they are not
// taken for the new one's.
func TestToolsOfADefinitionOfBefore(t *testing.T) {
	h := start(t)
	var asked, again atomic.Int64
	release := make(chan struct{})
	slow := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
	mcp.AddTool(slow, &mcp.Tool{Name: "old"}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	slow.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				if asked.Add(1) > 1 {
					again.Add(1)
				}
				select {
				case <-release:
				case <-t.Context().Done():
				}
			}
			return next(ctx, method, r)
		}
	})
	at, _ := h.serveMCP(slow)
	def := connection.Defined{Connection: "con_x", Type: connection.MCP, URL: "http://" + at, Private: []string{at}}
	define := func() {
		t.Helper()
		if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); err != nil {
			t.Fatal(err)
		}
	}
	define()
	buskit.Eventually(t, "the first is asked", func() bool { return asked.Load() == 1 })
	at, _ = h.serveMCP(offering(func(context.Context) error { return nil }))
	def.URL, def.Private = "http://"+at, []string{at}
	define()
	_, defined := servicekit.Await(h.Kit, 1, func(ev connection.Defined) bool { return ev.URL == def.URL })
	h.heard(defined.Seq)
	close(release)
	listed, _ := servicekit.Await(h.Kit, 1, func(ev connection.Listed) bool { return ev.Connection == "con_x" })
	if slices.ContainsFunc(listed.Body.Tools, func(t connection.Tool) bool { return t.Name == "old" }) {
		t.Errorf("the connection is said to have %+v", listed.Body.Tools)
	}
	if n := again.Load(); n != 0 {
		t.Errorf("the first is asked again %d times", n)
	}
	for _, e := range h.Events(schemas.Control, "connection.listed") {
		if ev, err := eventlog.Decode[connection.Listed](e); err == nil && ev.Connection == "con_x" && ev.Body.Tools[0].Name == "old" {
			t.Error("the first's tools are recorded")
		}
	}
}
