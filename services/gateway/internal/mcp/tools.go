package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
)

// listTools lists what the agent may call now.
func (e *Endpoint) listTools(ctx context.Context, c *conversation, p *mcp.ListToolsParams) (mcp.Result, error) {
	after, err := cursor(p.Cursor)
	if err != nil {
		return nil, err
	}
	if c.connection != "" && after == "" {
		after = c.connection + "." // what comes before is another's
	}
	tools, err := e.visible(ctx, c, after)
	if err != nil {
		return nil, err
	}
	items, next := []json.RawMessage{}, ""
	for _, t := range tools.Tools {
		if !c.served(connectionOf(t.Name)) {
			if c.connection < connectionOf(t.Name) {
				tools.Rest = false // the rest is others'
			}
			continue
		}
		items = append(items, described(c, t))
	}
	if tools.Rest {
		next = base64.RawURLEncoding.EncodeToString([]byte(tools.Tools[len(tools.Tools)-1].Name))
	}
	return rawTools{raw: page("tools", items, next)}.result(nil)
}

// described is a tool as clients are told of it: what its provider said, under the name that they call it by.
func described(c *conversation, t ask.VisibleTool) json.RawMessage {
	all := map[string]json.RawMessage{}
	if len(t.More) > 0 {
		_ = json.Unmarshal(t.More, &all) // the broker made it of an object
	}
	name := t.Name
	if c.connection != "" {
		name = name[len(c.connection)+1:]
	} else {
		name = c.names.of(name)
	}
	all["name"], _ = json.Marshal(name)
	all["inputSchema"] = t.Schema
	if t.Description != "" {
		all["description"], _ = json.Marshal(t.Description)
	}
	if all["annotations"] == nil {
		all["annotations"], _ = json.Marshal(map[string]bool{"readOnlyHint": !t.Writes, "idempotentHint": t.Effect == connection.Keyed || t.Effect == connection.Pure})
	}
	if c.hasTasks() {
		all["execution"] = json.RawMessage(`{"taskSupport":"optional"}`) // whatever its server says: the task is ours
	}
	raw, _ := json.Marshal(all) // of values that are JSON
	return raw
}

// tool is a tool's name as grants have it, of the name that the client knows it by.
func (e *Endpoint) tool(ctx context.Context, c *conversation, name string) (full string, ok bool, err error) {
	if c.connection != "" {
		return c.connection + "." + name, name != "" && !connection.Method(name), nil
	}
	full, ok, err = c.find(name, func() error { return e.everyTool(ctx, c) })
	_, own, _ := cutName(full)
	return full, ok && !connection.Method(own), err
}

// everyTool has the name of every tool said.
func (e *Endpoint) everyTool(ctx context.Context, c *conversation) error {
	for after, rest := "", true; rest; {
		tools, err := e.visible(ctx, c, after)
		if err != nil {
			return err
		}
		for _, t := range tools.Tools {
			c.names.of(t.Name)
			after = t.Name
		}
		rest = tools.Rest
	}
	return nil
}

// visible gives a page of the tools that the agent may call.
func (e *Endpoint) visible(ctx context.Context, c *conversation, after string) (ask.VisibleTools, error) {
	return question[ask.VisibleTools](ctx, e, c, "tools_visible",
		ask.Visibility{Agent: c.who.Agent, Run: c.current(), As: ask.Paged, After: after})
}
