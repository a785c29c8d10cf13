package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/ask"
)

// What a lazy agent is listed. No tool of a connection has such a name here: theirs have their connection's in front.
const (
	searchTools  = "search_tools"
	describeTool = "describe_tool"
	callTool     = "call_tool"
	runCode      = "run_javascript" // where a grant has it
)

// codeTool is the runtime's tool that it stands for.
const codeTool = "runtime.run_javascript"

var lazyTools = []json.RawMessage{
	json.RawMessage(`{"name":"search_tools","title":"Search tools","description":"Finds the tools that you may call by what they do. Gives the best first: their names, what they are for, and whether they change something.","inputSchema":{"type":"object","properties":{"query":{"type":"string","minLength":1,"maxLength":1024,"description":"a few words"},"limit":{"type":"integer","minimum":1,"maximum":20}},"required":["query"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`),
	json.RawMessage(`{"name":"describe_tool","title":"Describe a tool","description":"Tells what a tool does, and the JSON Schema of its arguments.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"as search_tools gives it"}},"required":["name"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}`),
	json.RawMessage(`{"name":"call_tool","title":"Call a tool","description":"Calls a tool by its name, with arguments by its schema. Ask describe_tool first.","inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"as search_tools gives it"},"arguments":{"type":"object"}},"required":["name"],"additionalProperties":false}}`),
}

func isLazy(name string) bool { return name == searchTools || name == describeTool || name == callTool }

// lazy says whether a conversation's agent is listed few tools. One connection's are listed whole.
func (e *Endpoint) lazy(c *conversation) bool {
	def, ok := e.State.Agent(c.who.Tenant, c.who.Agent)
	return ok && def.MCP.Tools == agent.Lazy && c.connection == ""
}

// listLazy lists the three, and how to run code, which calls tools without a model reading what they answer, to who may.
func (e *Endpoint) listLazy(ctx context.Context, c *conversation) (mcp.Result, error) {
	items := lazyTools
	t, err := question[ask.DescribedTool](ctx, e, c, "tool_describe", ask.DescribeTool{Agent: c.who.Agent, Run: c.current(), Name: codeTool, Client: true})
	switch {
	case problem.CodeOf(err) == problem.NotFound:
	case err != nil:
		return nil, err
	default:
		raw, err := json.Marshal(map[string]any{"name": runCode, "title": "Run JavaScript", "description": t.Description, "inputSchema": t.Schema})
		if err != nil {
			return nil, problem.Wrap(err, problem.Internal, "the tools cannot be listed")
		}
		items = append(slices.Clone(lazyTools), raw)
	}
	return rawTools{raw: page("tools", items, "")}.result(nil)
}

// unwrap makes the call that call_tool asks for of it. From here on it goes the way of a call by its own name.
func unwrap(p *mcp.CallToolParamsRaw) error {
	var in struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := strictly(p.Arguments, &in); err != nil {
		return err
	}
	p.Name, p.Arguments = in.Name, in.Arguments
	return nil
}

// tellOf answers from what the agent may call, as the broker knows it. It asks no provider, and what it tells is what a list would
// tell: nothing is called, so nothing is recorded.
func (e *Endpoint) tellOf(ctx context.Context, c *conversation, p *mcp.CallToolParamsRaw) (mcp.Result, error) {
	type tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Writes      bool            `json:"writes"`
		Schema      json.RawMessage `json:"inputSchema,omitempty"`
	}
	var in struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
		Name  string `json:"name"`
	}
	if err := strictly(p.Arguments, &in); err != nil {
		return nil, err
	}
	var answer any
	if p.Name == searchTools {
		found, err := question[ask.FoundTools](ctx, e, c, "tools_search",
			ask.SearchTools{Agent: c.who.Agent, Run: c.current(), Query: in.Query, Limit: in.Limit, Client: true})
		if err != nil {
			return nil, err
		}
		tools := []tool{}
		for _, t := range found.Tools {
			tools = append(tools, tool{Name: c.names.of(t.Name), Description: t.Description, Writes: t.Writes})
		}
		answer = map[string]any{"tools": tools}
	} else {
		full, ok, err := e.tool(ctx, c, in.Name)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown tool " + clip(in.Name)}
		}
		t, err := question[ask.DescribedTool](ctx, e, c, "tool_describe",
			ask.DescribeTool{Agent: c.who.Agent, Run: c.current(), Name: full, Client: true})
		if err != nil {
			return nil, err
		}
		answer = tool{Name: c.names.of(t.Name), Description: t.Description, Writes: t.Writes, Schema: t.Schema}
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the tools cannot be told")
	}
	return (&rawCall{raw: plain(raw, false, c.session == "")}).result(nil)
}

// strictly reads the arguments of one of these tools.
func strictly(raw json.RawMessage, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return problem.Wrap(err, problem.Invalid, "the arguments are not those of this tool; its input schema says what they are")
	}
	return nil
}
