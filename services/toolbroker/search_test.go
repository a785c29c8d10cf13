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
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// A script finds, over all connections, what its agent may call, and nothing else.
func TestScriptsSearchTools(t *testing.T) {
	h := start(t)
	var tools []connection.Tool
	for n := range 40 {
		tools = append(tools, connection.Tool{Name: fmt.Sprintf("list_sort%d", n), Description: fmt.Sprintf("List things of sort %d", n), Schema: json.RawMessage(`{"type":"object"}`), Effect: connection.Pure})
	}
	tools = append(tools,
		connection.Tool{Name: "find_invoice", Description: "Find open invoices\n" + strings.Repeat("long ", 4000), Schema: json.RawMessage(`{"type":"object","required":["q"],"properties":{"q":{"type":"string","description":"words"}}}`), Effect: connection.Pure},
		connection.Tool{Name: "delete_invoice", Description: "Delete an invoice", Schema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}},"description":"` + strings.Repeat("x", 300<<10) + `"}`), Effect: connection.Opaque, Writes: true},
		connection.Tool{Name: "then", Description: "A tool for invoices that no script can call", Schema: json.RawMessage(`{"type":"object"}`), Effect: connection.Pure},
	)
	for _, con := range []id.Connection{"con_billing", "con_search"} {
		h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(con), Event: connection.Defined{Connection: con, Type: connection.MCP, URL: "http://127.0.0.1:1"}})
		h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(con), Event: connection.Listed{Connection: con, Body: connection.Tools{Tools: tools}}})
	}
	allow := func(name id.Grant, tool string) uint64 {
		return h.Say(schemas.Approvals, eventlog.Draft{Key: string(name), Event: grant.Created{Grant: name, Agent: "agt_a", Approval: grant.Never, Selector: grant.Selector{Tool: tool}}})
	}
	allow("grt_search", "search.find*")
	h.heard(allow("grt_all", "billing.*"))

	runtime := h.Conn(t, string(schemas.Runtime))
	search := func(query string, limit int) (names []string, found ask.FoundTools) {
		found, err := rpc.Ask[ask.FoundTools](t.Context(), runtime, schemas.Toolbroker, "tools_search", servicekit.Owner(), ask.SearchTools{Agent: "agt_a", Run: "run_1", Query: query, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found.Tools {
			names = append(names, f.Name)
		}
		return names, found
	}
	names, found := search("open invoices", 0)
	if want := []string{"billing.find_invoice", "search.find_invoice", "billing.delete_invoice"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if d := found.Tools[0].Description; len(d) > 310 || !strings.HasPrefix(d, "Find open invoices") || !found.Tools[2].Writes {
		t.Errorf("%+v", found)
	}
	if names, _ := search("list things", 1000); len(names) != 20 || strings.Contains(strings.Join(names, " "), "search.") {
		t.Errorf("%q", names)
	}
	if names, _ := search("billing delete", 1); !slices.Equal(names, []string{"billing.delete_invoice"}) { // the connection is a word too
		t.Errorf("%q", names)
	}
	if names, _ := search("run javascript", 0); len(names) != 0 {
		t.Errorf("a script starts scripts with %q", names)
	}
	for _, query := range []string{"", strings.Repeat("x", 2000)} {
		if _, err := rpc.Ask[ask.FoundTools](t.Context(), runtime, schemas.Toolbroker, "tools_search", servicekit.Owner(), ask.SearchTools{Agent: "agt_a", Query: query}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("a query of %d bytes: %v", len(query), err)
		}
	}

	describe := func(name string) (ask.DescribedTool, error) {
		return rpc.Ask[ask.DescribedTool](t.Context(), runtime, schemas.Toolbroker, "tool_describe", servicekit.Owner(), ask.DescribeTool{Agent: "agt_a", Run: "run_1", Name: name})
	}
	one, err := describe("search.find_invoice")
	if err != nil || !strings.Contains(one.Types, "find_invoice(args: {") || !strings.Contains(one.Types, "q: string") || !strings.Contains(string(one.Schema), `"required":["q"]`) || len(one.Description) > 8300 {
		t.Errorf("%+v %v", one, err)
	}
	if one, err = describe("billing.delete_invoice"); err != nil || !strings.Contains(one.Types, "delete_invoice(args?: ") || !one.Writes || string(one.Schema) != "null" {
		t.Errorf("%.3000s %v", one.Types, err)
	}
	for _, name := range []string{"search.delete_invoice", "billing.then", "none.such", "", "runtime.run_javascript"} {
		if _, err := describe(name); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
	h.revoke("grt_search")
	if names, _ := search("open invoices", 0); slices.Contains(names, "search.find_invoice") {
		t.Errorf("after the revocation: %q", names)
	}
}
