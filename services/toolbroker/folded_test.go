package toolbroker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
)

// Where an agent may call a hundred tools of a connection, three stand for them: what it finds with them is what it may
// call, and asking uses nothing of its grant's limits.
func TestManyToolsAreFolded(t *testing.T) {
	h := start(t)
	var tools []connection.Tool
	for n := range 120 {
		verb := []string{"read", "write"}[n%2]
		tools = append(tools, connection.Tool{Name: fmt.Sprintf("%s_thing%d", verb, n), Description: fmt.Sprintf("To %s thing %d", verb, n),
			Schema: json.RawMessage(`{"type":"object"}`), Effect: connection.Opaque, Writes: verb == "write"})
	}
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "con_many", Event: connection.Defined{Connection: "con_many", Type: connection.MCP, URL: "http://127.0.0.1:1"}})
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: "con_many", Event: connection.Listed{Connection: "con_many", Body: connection.Tools{Tools: tools}}})
	h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_deny", Event: grant.Created{Grant: "grt_deny", Agent: "agt_a", Verdict: grant.Deny, Selector: grant.Selector{Tool: "many.write*"}}})
	allow := grant.Created{Grant: "grt_many", Agent: "agt_a", Approval: grant.Never, Limits: grant.Limits{Calls: 1}, Selector: grant.Selector{Tool: "many.*"}}
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_many", Event: allow}))

	gateway := h.Conn(t, string(schemas.Gateway))
	names := func(as ask.Listing) (out []string) {
		seen, err := rpc.Ask[ask.VisibleTools](t.Context(), gateway, schemas.Toolbroker, "tools_visible", servicekit.Owner(), ask.Visibility{Agent: "agt_a", As: as})
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range seen.Tools {
			if strings.HasPrefix(tool.Name, "many.") {
				out = append(out, tool.Name)
			}
		}
		return out
	}
	if got := names(ask.Folded); len(got) != 60 {
		t.Errorf("sixty tools are shown as %v", got) // fewer than fold
	}
	types := func() string {
		seen, err := rpc.Ask[ask.VisibleTools](t.Context(), gateway, schemas.Toolbroker, "tools_visible", servicekit.Owner(), ask.Visibility{Agent: "agt_a", As: ask.Folded})
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range seen.Tools {
			if tool.Types != "" && tool.Name != "runtime.run_javascript" {
				t.Errorf("%s has types", tool.Name)
			}
			if tool.Name == "runtime.run_javascript" {
				return tool.Types
			}
		}
		return "no scripts"
	}
	if got := types(); got != "no scripts" {
		t.Errorf("scripts are not granted: %s", got)
	}
	h.grant("grt_script", "runtime.run_javascript", grant.Never)
	if got := types(); !strings.Contains(got, "\n  read_thing0(") || strings.Contains(got, "write_thing") || strings.Contains(got, "run_javascript") || !strings.Contains(got, "add_issue_comment(args: {") {
		t.Errorf("with a denial scripts may call\n%s", got)
	}
	h.revoke("grt_deny")
	if got := types(); strings.Count(got, "_thing") != 120 || !strings.Contains(got, "/** To write thing 119 */\n  write_thing119(args?: Record<string, unknown>): Promise<any>") {
		t.Errorf("scripts may call\n%s", got)
	}
	if got := names(ask.Folded); !slices.Equal(got, []string{"many.search_operations", "many.describe_operation", "many.call_operation"}) {
		t.Errorf("120 tools are shown as %v", got)
	}
	if got := names(ask.Names); len(got) != 120 {
		t.Errorf("%d names", len(got))
	}

	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_deny", Event: grant.Created{Grant: "grt_deny", Agent: "agt_a", Verdict: grant.Deny, Selector: grant.Selector{Tool: "many.write*"}}}))
	h.request("call_1", "many.search_operations", `{"query":"write thing"}`, nil)
	found, _ := await[call.Finished](h, "call_1")
	if text := string(found.Body.Result); strings.Contains(text, "write_thing") || !strings.Contains(text, "read_thing") || len(found.Taint) > 0 {
		t.Errorf("the search tells %.300s, taint %v", text, found.Taint)
	}
	h.request("call_2", "many.describe_operation", `{"tool":"write_thing1"}`, nil)
	if got, _ := await[call.Failed](h, "call_2"); got.Code != string(problem.NotFound) {
		t.Errorf("%+v", got)
	}
	h.request("call_3", "many.call_operation", `{"tool":"read_thing0","arguments":{}}`, nil)
	if got, _ := await[call.Refused](h, "call_3"); got.Code != string(problem.Invalid) {
		t.Errorf("%+v", got)
	}
	h.request("call_4", "many.describe_operation", `{"tool":"read_thing0"}`, nil)
	if got, _ := await[call.Finished](h, "call_4"); !strings.Contains(string(got.Body.Result), `"name":"read_thing0"`) {
		t.Errorf("%s", got.Body.Result)
	}
	h.revoke("grt_many")
	h.request("call_5", "many.search_operations", `{"query":"thing"}`, nil)
	if got, _ := await[call.Refused](h, "call_5"); got.Code != string(problem.Denied) {
		t.Errorf("%+v", got)
	}
}
