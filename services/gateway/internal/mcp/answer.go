package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"runtime/debug"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
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
	case *taskParams:
		return e.aboutTask(ctx, c, method, r, p)
	case *mcp.InitializeParams:
		return e.begin(ctx, c, method, r, next)
	case *mcp.SubscriptionsListenParams:
		leave, err := e.sessions.listen(c.who, e.Limits.Sessions)
		if err != nil {
			return nil, err
		}
		defer leave()
		return e.listen(ctx, c, method, r, p, next)
	case *mcp.SubscribeParams:
		return e.subscribe(ctx, c, method, r, p.URI, next)
	case *mcp.UnsubscribeParams:
		return e.unsubscribe(ctx, c, method, r, p.URI, next)
	case *mcp.ListToolsParams:
		if e.lazy(c) {
			return e.listLazy(ctx, c)
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
		if e.lazy(c) && p.Name == runCode {
			p.Name = c.names.of(codeTool)
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
		raw, err := e.call(ctx, c, request{tool: full, args: args, input: inputOf(p.InputResponses, p.RequestState), state: p.RequestState, meta: p.Meta, of: r, task: taskModeOf(c, r)})
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
	return c.withTasks(result), nil
}

// within gives a context that ends with the conversation too.
func (c *conversation) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() { stop(); cancel() }
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

// current is the conversation as it is, for what is no call.
func (c *conversation) current() id.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == "" {
		c.id, c.began = id.New[id.Conversation](), time.Now()
	}
	return c.id.Run()
}
