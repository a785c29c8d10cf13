package toolbroker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
)

// programs is a file that lists this test's own program, for one tenant and for another.
func programs(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "programs.yaml")
	one := "    command: [%q]\n    env: {TOOLBROKER_TEST_PROGRAM: yes}\n    credential_env: TOKEN\n    tenants: [%s]\n"
	text := "programs:\n  notes:\n" + fmt.Sprintf(one, self, "tnt_a") + "  theirs:\n" + fmt.Sprintf(one, self, "tnt_b")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func runProgram() {
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "who"}, func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
		fmt.Fprintln(os.Stderr, "my token is", os.Getenv("TOKEN"))
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(len(os.Getenv("TOKEN")), " ", len(os.Environ()))}}}, nil, nil
	})
	_ = server.Run(context.Background(), &mcp.StdioTransport{})
}

// A connection may name a program that the operator listed for its tenant, and nothing else.
func TestProgramBesideTheBroker(t *testing.T) {
	h := start(t)
	for name, def := range map[string]connection.Defined{
		"of another tenant": {URL: "stdio:theirs"}, "not listed": {URL: "stdio:sh"}, "a path": {URL: "stdio:/bin/sh"}, "nothing": {URL: "stdio:"},
		"with arguments": {URL: "stdio:notes --evil"},
		"as an API":      {URL: "stdio:notes", Type: connection.API},
		"with addresses": {URL: "stdio:notes", Private: []string{"127.0.0.1:1"}},
		"with OAuth":     {URL: "stdio:notes", OAuth: connection.OAuth{Flow: connection.AuthorizationCode}},
	} {
		def.Connection = "con_notes"
		if def.Type == "" {
			def.Type = connection.MCP
		}
		if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	def := connection.Defined{Connection: "con_notes", Type: connection.MCP, URL: "stdio:notes"}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: def, Credential: token}); err != nil {
		t.Fatal(err)
	}
	_, listed := servicekit.Await(h.Kit, 1, func(ev connection.Listed) bool { return ev.Connection == "con_notes" })
	h.heard(listed.Seq)
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_notes", Event: grant.Created{Grant: "grt_notes", Agent: "agt_a", Approval: grant.Never, Tainted: true, Selector: grant.Selector{Tool: "notes.*"}}}))
	h.request("call_1", "notes.who", `{}`, nil)
	if done, _ := await[call.Finished](h, "call_1"); !strings.Contains(string(done.Body.Result), fmt.Sprintf(`"%d 2"`, len(token))) || len(done.Taint) != 1 {
		t.Errorf("%+v", done)
	}
}
