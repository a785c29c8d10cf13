package mcp

//lint:file-ignore SA1019 logging is to leave the protocol in 2027; the clients of today ask for it

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// answer answers one request of a client. What it does not know is the SDK's: the protocol's own.
func (e *Endpoint) answer(ctx context.Context, c *conversation, method string, r mcp.Request, next mcp.MethodHandler) (result mcp.Result, err error) {
	// It runs in a goroutine of the SDK's, where a panic would end every service of this process, for what one client sent.
	defer func() {
		if why := recover(); why != nil {
			e.Note.ErrorContext(ctx, "request", "method", method, "panic", why, "stack", string(debug.Stack()))
			result, err = nil, e.fault(ctx, method, problem.New(problem.Internal, "the request could not be answered"))
		}
	}()
	fill(r)
	result, err = e.handle(ctx, c, method, r, next)
	if err != nil {
		return nil, e.fault(ctx, method, err)
	}
	return result, nil
}

// fill gives a list's request parameters where the client sent none, as it may.
func fill(r mcp.Request) {
	switch r := r.(type) {
	case *mcp.ListToolsRequest:
		r.Params = cmp.Or(r.Params, &mcp.ListToolsParams{})
	case *mcp.ListResourcesRequest:
		r.Params = cmp.Or(r.Params, &mcp.ListResourcesParams{})
	case *mcp.ListResourceTemplatesRequest:
		r.Params = cmp.Or(r.Params, &mcp.ListResourceTemplatesParams{})
	case *mcp.ListPromptsRequest:
		r.Params = cmp.Or(r.Params, &mcp.ListPromptsParams{})
	}
}

func (e *Endpoint) handle(ctx context.Context, c *conversation, method string, r mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	ctx, leave := c.within(ctx)
	defer leave()
	if c.ctx.Err() != nil {
		return nil, problem.New(problem.Unauthenticated, "the access token does not hold any more")
	}
	switch p := r.GetParams().(type) {
	case *mcp.InitializeParams:
		return e.begin(ctx, c, method, r, next)
	case *mcp.SubscriptionsListenParams:
		leave, err := e.sessions.listen(c.who, e.Limits.Sessions)
		if err != nil {
			return nil, err
		}
		defer leave()
		return next(ctx, method, r)
	case *mcp.ListToolsParams:
		if e.lazy(c) {
			return rawTools{raw: page("tools", lazyTools, "")}.result(nil)
		}
		return e.listTools(ctx, c, p)
	case *mcp.ListResourcesParams:
		items, next, err := e.list(ctx, c, r, method, p.Cursor)
		return rawResources{raw: page("resources", items, next)}.result(err)
	case *mcp.ListResourceTemplatesParams:
		items, next, err := e.list(ctx, c, r, method, p.Cursor)
		return rawTemplates{raw: page("resourceTemplates", items, next)}.result(err)
	case *mcp.ListPromptsParams:
		items, next, err := e.list(ctx, c, r, method, p.Cursor)
		return rawPrompts{raw: page("prompts", items, next)}.result(err)
	case *mcp.CallToolParamsRaw:
		if e.lazy(c) && p.Name != callTool && isLazy(p.Name) {
			return e.tellOf(ctx, c, p)
		}
		if e.lazy(c) && p.Name == callTool {
			if err := unwrap(p); err != nil {
				return nil, err
			}
		}
		full, ok, err := e.tool(ctx, c, p.Name)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown tool " + clip(p.Name)}
		}
		args := p.Arguments
		if len(args) == 0 || string(args) == "null" { // clients say it either way
			args = json.RawMessage("{}")
		}
		raw, err := e.call(ctx, c, request{tool: full, args: args, input: inputOf(p.InputResponses, p.RequestState), state: p.RequestState, meta: p.Meta, of: r})
		return (&rawCall{raw: raw}).result(err)
	case *mcp.ReadResourceParams:
		con, uri, err := e.owner(ctx, c, r, "resources/list", "uri", p.URI)
		if err != nil {
			return nil, err
		}
		raw, err := e.callMethod(ctx, c, r, con, connection.ReadResource, map[string]any{"uri": uri}, inputOf(p.InputResponses, p.RequestState), p.RequestState, p.Meta)
		return (&rawRead{raw: cacheable(raw)}).result(err)
	case *mcp.GetPromptParams:
		con, name, err := e.owner(ctx, c, r, "prompts/list", "name", p.Name)
		if err != nil {
			return nil, err
		}
		args := map[string]any{"name": name}
		if p.Arguments != nil {
			args["arguments"] = p.Arguments
		}
		raw, err := e.callMethod(ctx, c, r, con, connection.GetPrompt, args, inputOf(p.InputResponses, p.RequestState), p.RequestState, p.Meta)
		return (&rawPrompt{raw: raw}).result(err)
	case *mcp.CompleteParams:
		return e.complete(ctx, c, r, p)
	}
	return next(ctx, method, r)
}

// begin begins a session, if there is room for it: the SDK keeps what it has begun.
func (e *Endpoint) begin(ctx context.Context, c *conversation, method string, r mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	session, ok := r.GetSession().(*mcp.ServerSession)
	if !ok || c.session == "" || e.sessions.find(c.session) != nil {
		return next(ctx, method, r)
	}
	if err := e.sessions.admit(c, e.Limits.Sessions); err != nil {
		return nil, err
	}
	result, err := next(ctx, method, r)
	if err != nil {
		e.sessions.forget(c)
		return nil, err
	}
	e.sessions.keep(c, session)
	if !e.holds(c.who) { // it was revoked before this was there to be ended
		c.over()
	}
	return result, nil
}

// within gives a context that ends with the conversation too.
func (c *conversation) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// inputOf is what the client gave to what was asked for, as the broker passes it on. It is nil for a request that is no second
// one.
func inputOf(responses mcp.InputResponseMap, state string) json.RawMessage {
	if responses == nil && state == "" {
		return nil
	}
	raw, err := json.Marshal(struct {
		Responses mcp.InputResponseMap `json:"inputResponses,omitempty"`
		State     string               `json:"requestState,omitempty"`
	}{responses, state})
	if err != nil {
		return nil
	}
	return raw
}

func (e *Endpoint) callMethod(ctx context.Context, c *conversation, r mcp.Request, con, method string, args map[string]any, input json.RawMessage, state string, meta mcp.Meta) (map[string]json.RawMessage, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the parameters cannot be read")
	}
	return e.call(ctx, c, request{tool: con + "." + method, args: raw, input: input, state: state, meta: meta, of: r})
}

func (e *Endpoint) complete(ctx context.Context, c *conversation, r mcp.Request, p *mcp.CompleteParams) (mcp.Result, error) {
	if p.Ref == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "ref has to name a prompt or a resource"}
	}
	list, member, value := "prompts/list", "name", p.Ref.Name
	if p.Ref.URI != "" {
		list, member, value = "resources/templates/list", "uriTemplate", p.Ref.URI
	}
	con, own, err := e.owner(ctx, c, r, list, member, value)
	if err != nil {
		return nil, err
	}
	ref := *p.Ref
	if ref.URI == "" {
		ref.Name = own
	}
	args := map[string]any{"ref": ref, "argument": p.Argument}
	if p.Context != nil {
		args["context"] = p.Context
	}
	raw, err := e.callMethod(ctx, c, r, con, connection.Complete, args, nil, "", p.Meta)
	return (&rawComplete{raw: raw}).result(err)
}

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

func cursor(text string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) > 200 {
		return "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of this server"}
	}
	return string(raw), nil
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
	raw, _ := json.Marshal(all) // of values that are JSON
	return raw
}

// client is what the client said of itself, for its server.
func client(r mcp.Request) call.Client {
	out := call.Client{Protocol: modern}
	session, _ := r.GetSession().(*mcp.ServerSession)
	if session == nil {
		return out
	}
	if p := session.InitializeParams(); p != nil {
		out.Protocol = p.ProtocolVersion
		if p.Capabilities != nil {
			out.Capabilities, _ = json.Marshal(p.Capabilities) // it was JSON
		}
	}
	if meta := metaOf(r); meta != nil {
		if level, ok := meta[mcp.MetaKeyLogLevel].(string); ok {
			out.LogLevel = level
		}
		if caps, ok := meta[mcp.MetaKeyClientCapabilities]; ok {
			out.Capabilities, _ = json.Marshal(caps) // it was JSON
		}
	}
	return out
}

// metaOf is what a request says of itself, nil where it has no parameters.
func metaOf(r mcp.Request) map[string]any {
	p := r.GetParams()
	if v := reflect.ValueOf(p); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return p.GetMeta()
}

// listWithin is how long the broker may take to ask servers.
const listWithin = 8 * time.Second

// list asks the broker for a page of what servers have, and where the next begins.
func (e *Endpoint) list(ctx context.Context, c *conversation, r mcp.Request, method, at string) (items []json.RawMessage, next string, err error) {
	found, err := e.ask(ctx, c, r, method, at)
	if err != nil {
		return nil, "", err
	}
	items = []json.RawMessage{}
	for _, item := range found.Items {
		items = append(items, e.named(c, method, item))
	}
	if found.Rest {
		skip, _ := cursor(at) // it was read before
		n, _ := atoi(skip)
		next = base64.RawURLEncoding.EncodeToString([]byte(itoa(n + len(found.Items))))
	}
	return items, next, nil
}

func (e *Endpoint) ask(ctx context.Context, c *conversation, r mcp.Request, method, at string) (ask.ForClient, error) {
	text, err := cursor(at)
	if err != nil {
		return ask.ForClient{}, err
	}
	skip, err := atoi(text)
	if err != nil {
		return ask.ForClient{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of this server"}
	}
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	return rpc.Ask[ask.ForClient](ctx, e.Conn, schemas.Toolbroker, "client_list", c.who.Caller(),
		ask.ListForClient{Agent: c.who.Agent, Run: c.current(), Connection: c.connection, Method: method, Client: client(r), Skip: skip})
}

// named puts the connection in front of a prompt's name where more than one connection is served. A resource's URI is its own.
func (e *Endpoint) named(c *conversation, method string, item ask.ClientItem) json.RawMessage {
	if c.connection != "" || method != "prompts/list" {
		return item.Item
	}
	var all map[string]json.RawMessage
	var name string
	if json.Unmarshal(item.Item, &all) != nil || json.Unmarshal(all["name"], &name) != nil {
		return item.Item
	}
	all["name"], _ = json.Marshal(c.names.of(item.Connection + "." + name))
	raw, err := json.Marshal(all)
	if err != nil {
		return item.Item
	}
	return raw
}

// owner finds whose a resource or prompt is, and what it is called there. Of one connection all is its own.
func (e *Endpoint) owner(ctx context.Context, c *conversation, r mcp.Request, list, member, value string) (con, own string, err error) {
	if c.connection != "" {
		return c.connection, value, nil
	}
	if member == "name" {
		full, ok, err := c.find(value, func() error { return e.everyPrompt(ctx, c, r) })
		if err != nil {
			return "", "", err
		}
		if !ok {
			return "", "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown prompt " + clip(value)}
		}
		con, own, _ = cutName(full)
		return con, own, nil
	}
	for at := ""; ; {
		found, err := e.ask(ctx, c, r, list, at)
		if err != nil {
			return "", "", err
		}
		for _, item := range found.Items {
			if textOf(item.Item, member) == value {
				return item.Connection, value, nil
			}
		}
		if !found.Rest {
			break
		}
		skip, _ := cursor(at)
		n, _ := atoi(skip)
		at = base64.RawURLEncoding.EncodeToString([]byte(itoa(n + len(found.Items))))
	}
	// It may be one of a template. Where only one server has any, it is that server's.
	found, err := e.ask(ctx, c, r, "resources/templates/list", "")
	if err != nil {
		return "", "", err
	}
	for _, item := range found.Items {
		if con != "" && con != item.Connection {
			return "", "", problem.New(problem.Conflict, "several connections have resource templates; read this one at %s", e.Site.URL("/mcp/c/NAME", nil))
		}
		con = item.Connection
	}
	if con == "" {
		return "", "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "resource not found: " + clip(value)}
	}
	return con, value, nil
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

// everyPrompt has the name of every prompt said.
func (e *Endpoint) everyPrompt(ctx context.Context, c *conversation, r mcp.Request) error {
	for at, rest := "", true; rest; {
		_, next, err := e.list(ctx, c, r, "prompts/list", at)
		if err != nil {
			return err
		}
		at, rest = next, next != ""
	}
	return nil
}

// visible gives a page of the tools that the agent may call.
func (e *Endpoint) visible(ctx context.Context, c *conversation, after string) (ask.VisibleTools, error) {
	return rpc.Ask[ask.VisibleTools](ctx, e.Conn, schemas.Toolbroker, "tools_visible", c.who.Caller(),
		ask.Visibility{Agent: c.who.Agent, Run: c.current(), As: ask.Paged, After: after})
}

// current is the conversation as it is, for what is no call.
func (c *conversation) current() id.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id.Run()
}
