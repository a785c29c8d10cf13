// Package mcp is a connection to an MCP server over Streamable HTTP, by the official SDK.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// resumes is how often a call's stream that broke off, and that the server numbers the events of, is taken up again in vain.
const resumes = 2

// maxTools bounds what a server may list.
const maxTools = 512

// Provider is one MCP connection. Its session is made at first use and made anew after it broke.
type Provider struct {
	dial    func(context.Context) (mcp.Transport, *lines, error)
	changed func() // of a program; a server at a URL is listened to apart

	url    string
	client *http.Client

	ctx     context.Context // of what goes on between calls
	stop    context.CancelFunc
	running sync.WaitGroup

	connecting chan struct{} // held by whoever makes a session, or has ended the last one

	mu      sync.Mutex
	session *mcp.ClientSession
	lines   *lines // of the session, for a program

	doors   doors
	watches *watches // nil: of a program
}

func newProvider() *Provider {
	p := &Provider{connecting: make(chan struct{}, 1)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// New makes a provider of the server at url. client is the way out; it adds the connection's credential.
func New(url string, client *http.Client) *Provider {
	own := *client
	if own.Transport == nil {
		own.Transport = http.DefaultTransport
	}
	own.Transport = wire{upstream.Statuses{Next: own.Transport}}
	p := newProvider()
	p.url, p.client = url, &own
	p.dial = func(context.Context) (mcp.Transport, *lines, error) {
		return &mcp.StreamableClientTransport{Endpoint: p.url, HTTPClient: p.client, MaxRetries: resumes, DisableStandaloneSSE: true}, nil, nil
	}
	return p
}

// Tools implements upstream.Provider.
func (p *Provider) Tools(ctx context.Context) ([]connection.Tool, error) {
	s, l, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, watch := upstream.Watched(ctx)
	var out []connection.Tool
	for t, err := range s.Tools(ctx, nil) {
		if err != nil {
			p.forget(s)
			if l != nil && l.program.Ended() {
				return nil, ended(err)
			}
			return nil, cause(problem.Wrap(err, problem.Upstream, "the MCP server does not list its tools"), watch)
		}
		if len(out) == maxTools {
			return nil, problem.New(problem.TooLarge, "the MCP server lists more than %d tools", maxTools)
		}
		schema, err := json.Marshal(t.InputSchema)
		if t.InputSchema == nil {
			schema = []byte(`{"type":"object"}`)
		}
		if err != nil || !validName(t.Name) || !bytes.HasPrefix(schema, []byte("{")) {
			continue // a tool that cannot be named or described cannot be granted, nor offered to a model
		}
		out = append(out, connection.Tool{Name: t.Name, Description: t.Description, Schema: schema, More: more(t),
			Effect: effect(t), Writes: t.Annotations == nil || !t.Annotations.ReadOnlyHint})
	}
	return out, nil
}

// more is what a server says of a tool besides its name, description and arguments, for clients that know what to do with it.
func more(t *mcp.Tool) json.RawMessage {
	var all map[string]json.RawMessage
	raw, err := json.Marshal(t)
	if err != nil || json.Unmarshal(raw, &all) != nil {
		return nil
	}
	for _, name := range []string{"name", "description", "inputSchema"} {
		delete(all, name)
	}
	if len(all) == 0 {
		return nil
	}
	raw, err = json.Marshal(all)
	if err != nil || len(raw) > maxMore {
		return nil
	}
	return raw
}

// maxMore is the most that a server may say of one tool besides its arguments, in bytes. More is left out.
const maxMore = 32 << 10

// effect is the effect class that the server's hints allow. Without hints a tool is opaque.
func effect(t *mcp.Tool) connection.Effect {
	switch {
	case t.Annotations == nil:
		return connection.Opaque
	case t.Annotations.ReadOnlyHint:
		return connection.Pure
	case t.Annotations.IdempotentHint:
		return connection.Keyed
	}
	return connection.Opaque
}

// rejectedByTransport is the code of the SDK's own error, in the form of a server's, for a request that its HTTP client
// got no answer to. It says nothing of whether the server got the request.
const rejectedByTransport = -32005

// Call implements upstream.Provider.
func (p *Provider) Call(ctx context.Context, c upstream.Call) (upstream.Result, error) {
	x := &exchange{method: methodOf(c.Tool), headers: paramHeaders(c.Schema, c.Args), say: c.News, client: c.Client}
	answer, err := p.try(ctx, c, x)
	if errors.Is(err, mcp.ErrSessionMissing) && !upstream.Ambiguous(err) {
		// The server was started anew, say. It did not run the tool; in a new session it may. An ambiguous one is of a call
		// that was sent before another's found the session gone.
		answer, err = p.try(ctx, c, x)
	}
	if err != nil {
		return upstream.Result{}, err
	}
	// As it came over the wire; as the SDK understood it only when that was too much to read along.
	var result any = x.parts()
	tool, _ := answer.(*mcp.CallToolResult)
	switch {
	case x.parts() != nil:
	case tool == nil:
		result = answer
	default:
		result = struct {
			Content    []mcp.Content `json:"content"`
			Structured any           `json:"structuredContent,omitempty"`
			Meta       mcp.Meta      `json:"_meta,omitempty"`
		}{tool.Content, tool.StructuredContent, tool.Meta}
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return upstream.Result{}, problem.Wrap(err, problem.Upstream, "the MCP server's answer cannot be read")
	}
	return upstream.Result{Content: raw, ToolError: tool != nil && tool.IsError}, nil
}

// try calls the tool in the session that is there, or in a new one.
func (p *Provider) try(ctx context.Context, c upstream.Call, x *exchange) (mcp.Result, error) {
	s, err := p.sessionFor(ctx, c.Client, x)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	x.asks.enter(x)
	defer x.asks.leave(x)
	l := s.lines
	ctx, watch := upstream.Watched(withExchange(ctx, x))
	meta := mcp.Meta{"execwarden/effect": c.Effect}
	if c.News != nil || c.Client != nil {
		meta["progressToken"] = string(c.Call)
	}
	switch { // in the protocol of 2026-07-28
	case c.Client != nil:
		describe(c.Client, meta)
	case c.News != nil:
		meta[logLevelKey] = logLevel
	}
	if l != nil {
		token, done := l.expect(ctx, x, string(c.Call))
		defer done()
		meta["progressToken"] = token
	}
	answer, err := ask(ctx, s.ClientSession, c, meta)
	var refused *jsonrpc.Error
	switch {
	case err == nil:
		return answer, nil
	case errors.As(err, &refused) && refused.Code != rejectedByTransport: // the server answered, and did not run the tool
		raw, _ := json.Marshal(refused) // it was JSON
		return nil, upstream.WithFault(problem.Wrap(err, problem.Upstream, "the MCP server refused the call: %.300s", refused.Message), raw)
	}
	if ctx.Err() == nil { // a call that we gave up on says nothing of the session, which other calls share
		s.forget()
	}
	if l != nil {
		failed := error(problem.Wrap(err, problem.Upstream, "the MCP server did not answer the call"))
		if l.program.Ended() {
			failed = ended(err)
		}
		if x.wasSent() {
			failed = upstream.Ambiguously(failed)
		}
		return nil, failed
	}
	failed := cause(problem.Wrap(err, problem.Upstream, "the MCP server did not answer the call"), watch)
	if watch.Sent() && !watch.Refused() {
		failed = upstream.Ambiguously(failed)
	}
	return nil, failed
}

// cause is why a request was not let out, where that is so: it says what helps, which the SDK's error does not.
func cause(err error, watch *upstream.Watch) error {
	if spared := watch.Spared(); spared != nil {
		return spared
	}
	return err
}

// Probe implements upstream.Provider. MCP has no way to look for an effect.
func (p *Provider) Probe(context.Context, upstream.Call) (upstream.Result, bool, error) {
	return upstream.Result{}, false, problem.New(problem.Internal, "an MCP tool cannot be probed")
}

// Close implements upstream.Provider.
func (p *Provider) Close() error {
	p.stop()
	p.running.Wait()
	p.connecting <- struct{}{} // whoever waits for it finds the connection closed
	defer func() { <-p.connecting }()
	p.mu.Lock()
	s := p.session
	p.session = nil
	p.mu.Unlock()
	p.doors.close()
	if s == nil {
		return nil
	}
	return s.Close()
}

// open gives the session that is there, nil when there is none that is good for a call.
func (p *Provider) open() (*mcp.ClientSession, *lines) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil || p.lines != nil && p.lines.program.Ended() {
		return nil, nil
	}
	return p.session, p.lines
}

func (p *Provider) connect(ctx context.Context) (*mcp.ClientSession, *lines, error) {
	if s, l := p.open(); s != nil {
		return s, l, nil
	}
	select { // a call that is given up does not wait for a server that takes its time with another's
	case p.connecting <- struct{}{}:
		defer func() { <-p.connecting }()
	case <-ctx.Done():
		return nil, nil, problem.Wrap(ctx.Err(), problem.Unavailable, "the MCP server takes too long to take the connection")
	}
	if s, l := p.open(); s != nil {
		return s, l, nil
	}
	p.mu.Lock()
	dead := p.session
	p.session = nil
	p.mu.Unlock()
	if dead != nil {
		_ = dead.Close() // of a program that ended
	}
	if p.ctx.Err() != nil {
		return nil, nil, problem.New(problem.Unavailable, "the connection is being closed")
	}
	ctx, watch := upstream.Watched(ctx) // its own: the session keeps it, and what ends it later is not a call's doing
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	transport, l, err := p.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	// No capabilities: there is nobody here whom a server could ask for roots, samples or answers, and one that thinks so
	// waits for them.
	opts := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
	if p.changed != nil {
		opts.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) { p.changed() }
	}
	s, err := newClient(opts).Connect(ctx, transport, nil)
	if err != nil {
		if l != nil {
			_ = l.Close() // the SDK may have done so
			return nil, nil, problem.Wrap(err, problem.Unavailable, "the program of the connection does not speak MCP, or ended")
		}
		return nil, nil, cause(problem.Wrap(err, problem.Upstream, "the MCP server does not take the connection"), watch)
	}
	askForLog(ctx, s, logLevel)
	p.mu.Lock()
	p.session, p.lines = s, l
	p.mu.Unlock()
	return s, l, nil
}

// newClient makes a client that asks when it is told to ask: the SDK would give a list of before for as long as the server
// says, and news of a change reach another session.
func newClient(opts *mcp.ClientOptions) *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "execwarden", Version: "0"}, opts)
	client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, r)
			if list, ok := result.(*mcp.ListToolsResult); ok && list != nil {
				list.TTLMs = 0
			}
			return result, err
		}
	})
	return client
}

// forget lets go of a session that broke, so that the next call makes a new one.
func (p *Provider) forget(s *mcp.ClientSession) {
	p.mu.Lock()
	if p.session == s {
		p.session = nil
	}
	p.mu.Unlock()
	_ = s.Close() // it broke already
}

func validName(n string) bool {
	for i := range len(n) {
		c := n[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return n != "" && len(n) <= 64 && !connection.Folded(n)
}
