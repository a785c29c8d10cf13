package mcp

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// methodOf is the MCP method of a call: of a tool's, or one that the call itself names.
func methodOf(tool string) string {
	if connection.Method(tool) {
		return tool
	}
	return "tools/call"
}

// ask makes the request of a call in a session.
func ask(ctx context.Context, s *mcp.ClientSession, c upstream.Call, meta mcp.Meta) (mcp.Result, error) {
	switch methodOf(c.Tool) {
	case "tools/call":
		p := &mcp.CallToolParams{Name: c.Tool, Arguments: c.Args, Meta: meta}
		if c.Client != nil && len(c.Client.Input) > 0 {
			var input struct {
				Responses mcp.InputResponseMap `json:"inputResponses"`
				State     string               `json:"requestState"`
			}
			if err := json.Unmarshal(c.Client.Input, &input); err != nil {
				return nil, problem.Wrap(err, problem.Invalid, "inputResponses are not answers to what was asked")
			}
			p.InputResponses, p.RequestState = input.Responses, input.State
		}
		return result(s.CallTool(ctx, p))
	case "resources/read":
		return with(ctx, c, meta, s.ReadResource)
	case "prompts/get":
		return with(ctx, c, meta, s.GetPrompt)
	case "completion/complete":
		return with(ctx, c, meta, s.Complete)
	}
	return nil, problem.New(problem.Internal, "this broker does not know the method %s", c.Tool)
}

// with reads a request's parameters, which are the call's arguments, and makes it.
func with[P any, R mcp.Result](ctx context.Context, c upstream.Call, meta mcp.Meta, make func(context.Context, *P) (R, error)) (mcp.Result, error) {
	p := new(P)
	for _, raw := range []json.RawMessage{c.Args, input(c)} {
		if len(raw) == 0 {
			continue
		}
		if err := json.Unmarshal(raw, p); err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "the arguments are not those of %s", c.Tool)
		}
	}
	if m, ok := any(p).(interface{ SetMeta(map[string]any) }); ok {
		m.SetMeta(meta)
	}
	return result(make(ctx, p))
}

func input(c upstream.Call) json.RawMessage {
	if c.Client == nil {
		return nil
	}
	return c.Client.Input
}

// result keeps a nil result from becoming one that is not nil.
func result[R mcp.Result](r R, err error) (mcp.Result, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// describe puts what the client can do into a request, as the protocol of 2026-07-28 has it.
func describe(c *upstream.Client, meta mcp.Meta) {
	if !c.Modern() {
		return
	}
	if c.LogLevel != "" {
		meta[logLevelKey] = c.LogLevel
	}
	if len(c.Capabilities) > 0 {
		meta[mcp.MetaKeyClientCapabilities] = c.Capabilities
	}
}

// List implements upstream.Lister.
func (p *Provider) List(ctx context.Context, method string, c *upstream.Client) (json.RawMessage, error) {
	x := &exchange{method: method, client: c}
	s, err := p.sessionFor(ctx, c, x)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	ctx, watch := upstream.Watched(withExchange(ctx, x))
	meta := mcp.Meta{}
	describe(c, meta)
	if l := s.lines; l != nil {
		token, done := l.expect(ctx, x, method)
		defer done()
		meta["progressToken"] = token
	}
	told := s.InitializeResult().Capabilities
	if told == nil {
		told = &mcp.ServerCapabilities{}
	}
	all := []json.RawMessage{}
	next := ""
	for range maxPages {
		x.result, x.id = nil, ""
		var answer mcp.Result
		switch what, _, _ := strings.Cut(method, "/"); {
		case what == "resources" && told.Resources == nil, what == "prompts" && told.Prompts == nil:
			return []byte("[]"), nil
		case method == "resources/list":
			answer, err = result(s.ListResources(ctx, &mcp.ListResourcesParams{Meta: meta, Cursor: next}))
		case method == "resources/templates/list":
			answer, err = result(s.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Meta: meta, Cursor: next}))
		case method == "prompts/list":
			answer, err = result(s.ListPrompts(ctx, &mcp.ListPromptsParams{Meta: meta, Cursor: next}))
		default:
			return nil, problem.New(problem.Internal, "this broker does not know the method %s", method)
		}
		if err != nil {
			if ctx.Err() == nil {
				s.forget()
			}
			return nil, cause(problem.Wrap(err, problem.Upstream, "the MCP server does not answer %s", method), watch)
		}
		raw := x.raw()
		if raw == nil {
			if raw, err = json.Marshal(answer); err != nil {
				return nil, problem.Wrap(err, problem.Upstream, "the MCP server's answer cannot be read")
			}
		}
		var page struct {
			Resources []json.RawMessage `json:"resources"`
			Templates []json.RawMessage `json:"resourceTemplates"`
			Prompts   []json.RawMessage `json:"prompts"`
			Next      string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, problem.Wrap(err, problem.Upstream, "the MCP server's answer cannot be read")
		}
		all = append(append(append(all, page.Resources...), page.Templates...), page.Prompts...)
		if next = page.Next; next == "" || len(all) > maxListed {
			break
		}
	}
	return json.Marshal(all[:min(len(all), maxListed)])
}

// Bounds of what a server lists besides tools.
const (
	maxPages  = 50
	maxListed = 1000
)
