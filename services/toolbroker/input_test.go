package toolbroker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/approval"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

// answering makes a request one of an MCP client that answers what its server asked.
func answering(input string) func(*call.Requested) {
	return func(r *call.Requested) {
		r.Client = &call.Client{Protocol: "2026-07-28"}
		r.Body.Input = json.RawMessage(input)
		r.ArgsDigest = permit.ArgsDigest(r.Body)
	}
}

// Answers to what a server asked are refused where they are none, where nobody asked, and where the request's digest leaves
// them out; and are bound by an approval where they are well, also of edited arguments.
func TestAnswersAreBound(t *testing.T) {
	h := start(t)
	server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "do", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		raw, err := json.Marshal(r.Params.InputResponses)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments) + string(raw) + r.Params.RequestState}}}, err
	})
	h.connectMCP("tickets", server)
	const state = `{"requestState":"s1"}`
	for name, c := range map[id.Call]struct {
		tool   string
		change func(*call.Requested)
	}{
		"call_github":   {"github.issue_read", answering(state)},
		"call_machine":  {"runtime.run_javascript", answering(state)},
		"call_nothing":  {"gitlab.issue_read", answering(state)},
		"call_shape":    {"tickets.do", answering(`{"uri":"file:///closed"}`)},
		"call_twice":    {"tickets.do", answering(`{"requestState":"s1","requestState":"s2"}`)},
		"call_list":     {"tickets.do", answering(`[]`)},
		"call_unbound":  {"tickets.do", func(r *call.Requested) { digest := r.ArgsDigest; answering(state)(r); r.ArgsDigest = digest }},
		"call_another":  {"tickets.do", func(r *call.Requested) { answering(state)(r); r.Body.Input = json.RawMessage(`{"requestState":"s2"}`) }},
		"call_noclient": {"tickets.do", func(r *call.Requested) { answering(state)(r); r.Client = nil }},
	} {
		h.request(name, c.tool, readArgs, c.change)
		if got, _ := await[call.Refused](h, name); got.Code != string(problem.Invalid) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	h.heard(h.Say(schemas.Approvals, eventlog.Draft{Key: "grt_tickets", Event: grant.Created{Grant: "grt_tickets", Agent: "agt_a", Approval: grant.Always, Tainted: true,
		Selector: grant.Selector{Tool: "tickets.*"}}}))
	h.request("call_1", "tickets.do", `{"n":1}`, answering(state))
	held, _ := await[call.Held](h, "call_1")
	h.request("call_2", "tickets.do", `{"n":1}`, answering(`{"requestState":"s2"}`))
	other, _ := await[call.Held](h, "call_2")
	h.request("call_3", "tickets.do", `{"n":1}`, nil)
	plain, _ := await[call.Held](h, "call_3")
	checked, err := h.check(held, `{"n":2}`)
	if err != nil {
		t.Fatal(err)
	}
	unlike := map[string]bool{held.Digest: true, other.Digest: true, plain.Digest: true, checked.Digest: true}
	if len(unlike) != 4 {
		t.Fatalf("%v", unlike)
	}
	// Approved for another answer: nothing is made.
	h.Say(schemas.Approvals, eventlog.Draft{Key: "apr_2", Event: approval.Decided{Approval: "apr_2", Call: "call_2", Run: run1, Digest: held.Digest, Approved: true, By: "mem_y", Requested: other.Requested}})
	if got, _ := await[call.Refused](h, "call_2"); got.Code != string(problem.Conflict) {
		t.Errorf("%+v", got)
	}
	a, at := h.edit(held, checked.Digest, string(checked.Args))
	h.approveEdit(held, a, checked.Digest, at)
	done, _ := await[call.Finished](h, "call_1")
	if text := string(done.Body.Result); !strings.Contains(text, `{\"n\":2}`) || !strings.Contains(text, "s1") {
		t.Errorf("the server was sent %s", text)
	}
}
