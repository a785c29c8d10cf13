package up

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// lazyWorld has a lazy agent, who may look up whose a component is, and dials as its client.
func lazyWorld(t *testing.T, runtime agent.Runtime) (w *world, dial func(*testing.T, string) *mcp.ClientSession) {
	t.Helper()
	w = newWorld(t)
	ctx := t.Context()
	for _, err := range []error{
		w.PutConnection(ctx, connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: w.api.URL(), Private: []string{hostport(w.api.URL())}, Trusted: true}, ""),
		w.PutAgent(ctx, agent.Defined{Agent: "agt_laptop", Hosting: agent.External, MCP: agent.MCP{Tools: agent.Lazy}, Runtime: runtime}, ""),
		w.PutGrant(ctx, grant.Created{Grant: "grt_owner", Agent: "agt_laptop", Approval: grant.Never, Selector: grant.Selector{Tool: "tickets.find_owner"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	buskit.Eventually(t, "the tools are listed", func() bool {
		all, err := w.Connections(ctx)
		return err == nil && len(all) == 1 && len(all[0].Tools) > 1
	})
	token, err := w.CreateToken(ctx, client.NewToken{Agent: "agt_laptop"})
	if err != nil {
		t.Fatal(err)
	}
	return w, func(t *testing.T, version string) *mcp.ClientSession {
		t.Helper()
		session, err := mcp.NewClient(&mcp.Implementation{Name: "lazy", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: w.endpoints.API + "/mcp", HTTPClient: &http.Client{Transport: &bearer{token: token.Secret}}, DisableStandaloneSSE: true,
		}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		return session
	}
}

// A lazy agent finds what it may call and nothing else, and a call by call_tool is the call of the tool that it names: decided,
// recorded and refused as that.
func TestLazyTools(t *testing.T) {
	w, dial := lazyWorld(t, agent.Runtime{})
	ctx := t.Context()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run("stacklok/toolhive#4374 "+version, func(t *testing.T) {
			ctx := t.Context()
			session := dial(t, version)
			list, err := session.ListTools(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
			}
			if !slices.Equal(names, []string{"search_tools", "describe_tool", "call_tool"}) {
				t.Errorf("%v", names)
			}
			ask := func(tool string, args any) (string, error) {
				r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
				if err != nil {
					return "", err
				}
				return r.Content[0].(*mcp.TextContent).Text, nil
			}
			for _, query := range []string{"owner component", "ticket", "create a ticket", "find_owner", "close"} {
				found, err := ask("search_tools", map[string]any{"query": query, "limit": 20})
				if err != nil {
					t.Fatal(err)
				}
				var all struct{ Tools []struct{ Name string } }
				if err := json.Unmarshal([]byte(found), &all); err != nil {
					t.Fatal(err)
				}
				for _, tool := range all.Tools {
					if tool.Name != "tickets__find_owner" {
						t.Errorf("%q finds %s", query, tool.Name)
					}
				}
				if strings.Contains(query, "owner") && len(all.Tools) != 1 {
					t.Errorf("%q finds %s", query, found)
				}
			}
			if about, err := ask("describe_tool", map[string]any{"name": "tickets__find_owner"}); err != nil || !strings.Contains(about, `"inputSchema"`) {
				t.Errorf("%s, %v", about, err)
			}
			if got, err := ask("call_tool", map[string]any{"name": "tickets__find_owner", "arguments": map[string]any{"component": "webhooks"}}); err != nil || got == "" {
				t.Errorf("%s, %v", got, err)
			}
			for name, tc := range map[string]struct {
				tool string
				args any
				code int64
			}{
				"describe what is not granted": {"describe_tool", map[string]any{"name": "tickets__create_ticket"}, -32602},
				"describe what is not there":   {"describe_tool", map[string]any{"name": "nothing"}, -32602},
				"call what is not granted":     {"call_tool", map[string]any{"name": "tickets__create_ticket", "arguments": map[string]any{}}, -32050},
				"call itself":                  {"call_tool", map[string]any{"name": "call_tool", "arguments": map[string]any{"name": "tickets__find_owner"}}, -32602},
				"call with more":               {"call_tool", map[string]any{"name": "tickets__find_owner", "arguments": map[string]any{}, "as": "root"}, -32602},
				"a search for nothing":         {"search_tools", map[string]any{"query": ""}, -32602},
				"a long search":                {"search_tools", map[string]any{"query": strings.Repeat("x", 2000)}, -32602},
				"no arguments":                 {"search_tools", []int{1}, -32602},
			} {
				_, err := ask(tc.tool, tc.args)
				var wire *jsonrpc.Error
				if !errors.As(err, &wire) || wire.Code != tc.code {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	// The record has the tools themselves, and nothing of how they were asked for.
	recorded := map[string]int{}
	buskit.Eventually(t, "the calls are recorded", func() bool {
		clear(recorded)
		page, err := w.Events(context.WithoutCancel(ctx), client.Filter{Kind: "call.requested"}, client.Cursor{})
		if err != nil {
			return false
		}
		for _, e := range page.Events {
			envelope, err := e.Envelope()
			if err != nil {
				t.Fatal(err)
			}
			ev, err := envelope.Decode()
			if err != nil {
				t.Fatal(err)
			}
			recorded[ev.(call.Requested).Tool]++
		}
		return recorded["tickets.find_owner"] == 2 && recorded["tickets.create_ticket"] == 2
	})
	if len(recorded) != 2 {
		t.Errorf("%v", recorded)
	}
}

// Where a grant has it, a lazy agent's client runs scripts (code mode): their calls are the agent's, each decided by itself.
func TestCodeOverMCP(t *testing.T) {
	w, dial := lazyWorld(t, agent.Runtime{Enabled: true})
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			ctx := t.Context()
			session := dial(t, version)
			listed := func() bool {
				list, err := session.ListTools(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				return slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == "run_javascript" })
			}
			run := func(source string) (*mcp.CallToolResult, error) {
				return session.CallTool(ctx, &mcp.CallToolParams{Name: "run_javascript", Arguments: map[string]any{"source": source}})
			}
			denied := func(err error) bool {
				var wire *jsonrpc.Error
				return errors.As(err, &wire) && wire.Code == -32050
			}
			if _, err := run("return 1"); !denied(err) || listed() {
				t.Errorf("without a grant: %v, listed %v", err, listed())
			}
			if err := w.PutGrant(ctx, grant.Created{Grant: id.Grant("grt_code" + version[:4]), Agent: "agt_laptop", Approval: grant.Never, Selector: grant.Selector{Tool: "runtime.run_javascript"}}); err != nil {
				t.Fatal(err)
			}
			buskit.Eventually(t, "what is granted is listed", listed)
			got, err := run(`
				const found = await tools.search("owner");
				const owner = await tools.tickets.find_owner({component: "documentation"});
				const refused = await tools.tickets.create_ticket({title: "x"}).then(() => "made", e => e.code);
				return {found: found.map(t => t.name), owner: !!owner, refused};`)
			if err != nil || got.IsError {
				t.Fatalf("%+v, %v", got, err)
			}
			text, _ := json.Marshal(got.StructuredContent)
			if !strings.Contains(string(text), `"found":["tickets.find_owner"]`) || !strings.Contains(string(text), `"owner":true`) || strings.Contains(string(text), "made") {
				t.Errorf("%s", text)
			}
			if _, err := w.Revoke(ctx, "code"+version[:4], ""); err != nil {
				t.Fatal(err)
			}
			if _, err := run("return 1"); !denied(err) || listed() {
				t.Errorf("after the revocation: %v, listed %v", err, listed())
			}
		})
	}
}
