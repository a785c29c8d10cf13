package up

import (
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/token"
	"github.com/execwarden/execwarden/services/gateway"
)

// What an external agent without sessions was given taints what it does by the same token, whichever path it takes, and after
// everything was started anew. Another token begins without.
func TestMCPTaintOutlivesTheGateway(t *testing.T) {
	w := newMCPWorld(t, func(c *gateway.Config) { c.MCPHeldWait = 300 * time.Millisecond })
	for name, trusted := range map[string]bool{"web": false, "own": true} {
		p := provide(t, eras[without])
		w.provider(name, p.url, 7)
		if !trusted {
			must(t, w.PutConnection(t.Context(), connection.Defined{Connection: id.Connection("con_" + name), Type: connection.MCP, URL: p.url, Private: []string{hostport(p.url)}}, ""))
		}
	}
	w.agent("a")
	w.grant("a", "web", "web.give")
	w.grant("a", "own", "own.*")
	call := func(path, tool string) *mcp.CallToolResult {
		t.Helper()
		s, _ := w.dial(t, "a", without, path, nil)
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
		must(t, err)
		return r
	}
	held := func(path, tool string) bool { return status(t, call(path, tool)).Status == "awaiting_approval" }

	call("/mcp/c/own", "give")
	if held("/mcp", "own__write") {
		t.Fatal("what a trusted connection gives taints")
	}
	buskit.Eventually(t, "the connection is not trusted", func() bool {
		call("/mcp/c/web", "give")
		return held("/mcp", "own__write")
	})
	said := w.recorded(t, "token.tainted", func(all []schemas.Event) bool { return len(all) > 0 })
	if one := said[0].(token.Tainted); len(said) != 1 || one.Agent != "agt_a" || !slices.Equal(one.Taint, []string{"con_web"}) {
		t.Errorf("%+v", said)
	}
	w.stop()
	w.start()
	if !held("/mcp", "own__write") || !held("/mcp/c/own", "write") {
		t.Error("it is forgotten")
	}
	w.token("a")
	if held("/mcp", "own__write") {
		t.Error("a new token is tainted")
	}
}
