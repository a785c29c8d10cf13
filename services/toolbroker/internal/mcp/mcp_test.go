package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/mcp"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a real MCP server that can be stopped and started again at its address.
type served struct {
	t    *testing.T
	at   string
	http *http.Server
	sdk  *sdk.Server
	ran  atomic.Int64 // calls of any tool
}

func (s *served) server() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "tickets", Version: "1"}, nil)
	add := func(name string, hints *sdk.ToolAnnotations, run func(map[string]any) (*sdk.CallToolResult, error)) {
		sdk.AddTool(server, &sdk.Tool{Name: name, Description: "does " + name, Annotations: hints}, func(_ context.Context, _ *sdk.CallToolRequest, in map[string]any) (*sdk.CallToolResult, any, error) {
			s.ran.Add(1)
			r, err := run(in)
			return r, nil, err
		})
	}
	text := func(s string) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
	}
	add("echo", &sdk.ToolAnnotations{ReadOnlyHint: true}, func(in map[string]any) (*sdk.CallToolResult, error) { return text(fmt.Sprint(in["say"])), nil })
	add("close_ticket", &sdk.ToolAnnotations{IdempotentHint: true}, func(map[string]any) (*sdk.CallToolResult, error) { return text("closed"), nil })
	add("pay", nil, func(map[string]any) (*sdk.CallToolResult, error) { return text("paid"), nil })
	add("fail", nil, func(map[string]any) (*sdk.CallToolResult, error) { return nil, errors.New("no such ticket") })
	return server
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{t: t, at: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *served) start() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.at)
	if err != nil {
		s.t.Fatal(err)
	}
	s.at = l.Addr().String()
	server := s.server()
	s.sdk = server
	s.http = &http.Server{Handler: sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)}
	go func(h *http.Server) { _ = h.Serve(l) }(s.http)
}

func (s *served) stop() {
	_ = s.http.Close()
	for session := range s.sdk.Sessions() {
		_ = session.Close()
	}
}

func provider(t *testing.T, url string) *mcp.Provider {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true} // a call over a connection that broke meanwhile is ambiguous
	p := mcp.New(url, &http.Client{Transport: transport})
	t.Cleanup(func() { _ = p.Close(); transport.CloseIdleConnections() })
	return p
}

func call(t *testing.T, p *mcp.Provider, tool, args string) (upstream.Result, error) {
	t.Helper()
	return p.Call(t.Context(), upstream.Call{Call: "call_1", Tool: tool, Args: json.RawMessage(args), Effect: "call_1"})
}

func TestTools(t *testing.T) {
	p := provider(t, "http://"+serve(t).at)
	tools, err := p.Tools(t.Context())
	if err != nil || len(tools) != 4 {
		t.Fatalf("%+v, %v", tools, err)
	}
	want := map[string]connection.Tool{"echo": {Effect: connection.Pure}, "close_ticket": {Effect: connection.Keyed, Writes: true}, "pay": {Effect: connection.Opaque, Writes: true}, "fail": {Effect: connection.Opaque, Writes: true}}
	for _, tool := range tools {
		if w := want[tool.Name]; tool.Effect != w.Effect || tool.Writes != w.Writes || !strings.HasPrefix(string(tool.Schema), "{") || tool.Description != "does "+tool.Name {
			t.Errorf("%+v", tool)
		}
	}
}

func TestCalls(t *testing.T) {
	p := provider(t, "http://"+serve(t).at)
	got, err := call(t, p, "echo", `{"say":"<hello>"}`)
	if err != nil || got.ToolError || !strings.Contains(string(got.Content), `hello`) {
		t.Errorf("%s, %v", got.Content, err)
	}
	got, err = call(t, p, "fail", `{}`)
	if err != nil || !got.ToolError || !strings.Contains(string(got.Content), "no such ticket") {
		t.Errorf("a tool's own error: %s, %v, %v", got.Content, got.ToolError, err)
	}
	// The server did not run it, and said so.
	if _, err = call(t, p, "no_such_tool", `{}`); problem.CodeOf(err) != problem.Upstream || upstream.Ambiguous(err) {
		t.Errorf("a protocol error: %v, ambiguous %v", err, upstream.Ambiguous(err))
	}
	if _, _, err := p.Probe(t.Context(), upstream.Call{Tool: "pay"}); err == nil {
		t.Error("an MCP tool is probed")
	}
	if got, err = call(t, p, "echo", `{"say":"again"}`); err != nil || !strings.Contains(string(got.Content), "again") {
		t.Errorf("after errors: %s, %v", got.Content, err)
	}
}

// A server that is gone is told as what had no effect; one that came back is spoken to again, and a call that finds
// its session gone is made in a new one, once.
func TestServerComesBack(t *testing.T) {
	s := serve(t)
	p := provider(t, "http://"+s.at)
	if _, err := call(t, p, "pay", `{}`); err != nil {
		t.Fatal(err)
	}
	s.stop()
	for range 3 {
		if _, err := call(t, p, "pay", `{}`); problem.CodeOf(err) != problem.Upstream || upstream.Ambiguous(err) {
			t.Errorf("nobody there: %v, ambiguous %v", err, upstream.Ambiguous(err))
		}
	}
	s.start()
	if _, err := call(t, p, "pay", `{}`); err != nil {
		t.Fatalf("it is back: %v", err)
	}
	s.stop()
	s.start() // with no call in between: the session that the provider has is of the old one
	if _, err := call(t, p, "pay", `{}`); err != nil {
		t.Errorf("its session is gone: %v, ambiguous %v", err, upstream.Ambiguous(err))
	}
	if n := s.ran.Load(); n != 3 {
		t.Errorf("paid %d times, want 3", n)
	}
}

// broken is an MCP server by hand, which does to a tool call what it is told to.
func broken(t *testing.T, tools string, onCall http.HandlerFunc) (*mcp.Provider, *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ProtocolVersion string `json:"protocolVersion"`
			}
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Error(err)
		}
		answer := func(result string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "s1")
			answer(fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`, m.Params.ProtocolVersion))
		case "tools/list":
			answer(tools)
		case "tools/call":
			calls.Add(1)
			r.Body = io.NopCloser(bytes.NewReader(m.ID))
			onCall(w, r)
		default:
			if len(m.ID) > 0 {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
				return
			}
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(server.Close)
	return provider(t, server.URL), &calls
}

// Once a call was sent, only an answer says that it had no effect.
func TestBrokenCalls(t *testing.T) {
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		ambiguous bool
	}{
		"the connection breaks": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"it breaks in the answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"jsonrpc":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, true},
		"500":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, true},
		"503":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, true},
		"400":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, false},
		"401":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, false},
		"403":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, false},
		"429":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, false},
		"404 for ever": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, false},
		"a protocol error": {func(w http.ResponseWriter, r *http.Request) {
			id, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"invalid params"}}`, id)
		}, false},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "<html>")
		}, true},
		"another type": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, calls := broken(t, `{"tools":[]}`, c.answer)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := p.Call(ctx, upstream.Call{Tool: "pay", Args: json.RawMessage(`{}`)})
			if err == nil || upstream.Ambiguous(err) != c.ambiguous {
				t.Errorf("%v, ambiguous %v", err, upstream.Ambiguous(err))
			}
			if n := calls.Load(); n != 1 && !(name == "404 for ever" && n == 2) {
				t.Errorf("it was called %d times", n)
			}
		})
	}
}

// A call that is given up does not wait until a server that hangs has let another's attempt to connect go.
func TestGivenUpWhileAnotherConnects(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		once.Do(func() { close(arrived) })
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	p := provider(t, server.URL)
	first := make(chan struct{})
	go func() {
		defer close(first)
		_, _ = p.Call(t.Context(), upstream.Call{Tool: "pay", Args: json.RawMessage(`{}`)}) // it fails, whenever
	}()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := p.Call(ctx, upstream.Call{Tool: "pay", Args: json.RawMessage(`{}`)})
		second <- err
	}()
	cancel()
	select {
	case err := <-second:
		if err == nil || upstream.Ambiguous(err) {
			t.Errorf("%v, ambiguous %v", err, upstream.Ambiguous(err))
		}
	case <-first:
		t.Error("it waits for another's")
	}
	close(release)
	<-first
}

// A session that the server forgot is no answer to the calls that were sent in it before: they are not made again.
func TestSessionEndsUnderACall(t *testing.T) {
	var n atomic.Int64
	first, release := make(chan struct{}), make(chan struct{})
	p, calls := broken(t, `{"tools":[]}`, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": it works on it\n\n")
			_ = http.NewResponseController(w).Flush()
			close(first)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case 2:
			w.WriteHeader(http.StatusNotFound)
		default:
			id, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
		}
	})
	defer close(release)
	ended := make(chan error, 1)
	go func() {
		_, err := p.Call(t.Context(), upstream.Call{Tool: "pay", Args: json.RawMessage(`{}`)})
		ended <- err
	}()
	<-first
	if _, err := p.Call(t.Context(), upstream.Call{Tool: "pay", Args: json.RawMessage(`{}`)}); err != nil {
		t.Error(err)
	}
	if err := <-ended; !upstream.Ambiguous(err) || calls.Load() != 3 {
		t.Errorf("%v, ambiguous %v, %d calls", err, upstream.Ambiguous(err), calls.Load())
	}
}

// A call that its context ends, by a revocation for one, may have had its effect.
func TestCutOff(t *testing.T) {
	got, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p, _ := broken(t, `{"tools":[]}`, func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(got) })
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-got; cancel() }()
	_, err := p.Call(ctx, upstream.Call{Tool: "pay", Args: json.RawMessage(`{}`)})
	if err == nil || !upstream.Ambiguous(err) {
		t.Errorf("%v, ambiguous %v", err, upstream.Ambiguous(err))
	}
}

// What a server lists goes to models as it is: a tool that would break every request of theirs is left out.
func TestHostileLists(t *testing.T) {
	long := strings.Repeat("a", 65)
	p, _ := broken(t, `{"tools":[{"name":"good","inputSchema":{"type":"object"}},{"name":"no_schema"},{"name":"null_schema","inputSchema":null},
		{"name":"text_schema","inputSchema":"object"},{"name":"true_schema","inputSchema":true},{"name":"","inputSchema":{}},{"name":"a.b","inputSchema":{}},
		{"name":"a b","inputSchema":{}},{"name":"../x","inputSchema":{}},{"name":"`+long+`","inputSchema":{}}]}`, nil)
	tools, err := p.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
		if !strings.HasPrefix(string(tool.Schema), "{") {
			t.Errorf("%s has schema %s", tool.Name, tool.Schema)
		}
	}
	if got := strings.Join(names, " "); got != "good no_schema null_schema" {
		t.Errorf("listed: %s", got)
	}
	many := `{"name":"t","inputSchema":{}},`
	p, _ = broken(t, `{"tools":[`+strings.TrimSuffix(strings.Repeat(many, 513), ",")+`]}`, nil)
	if _, err := p.Tools(t.Context()); problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("513 tools: %v", err)
	}
	p, _ = broken(t, `"x"`, nil)
	if _, err := p.Tools(t.Context()); problem.CodeOf(err) != problem.Upstream {
		t.Errorf("a list that is none: %v", err)
	}
}
