package up

//lint:file-ignore SA1019 logging and sampling are to leave the protocol in 2027; until then they are tested

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/gateway"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// The two eras of MCP: with sessions, and without.
const (
	sessions = "2025-11-25"
	without  = "2026-07-28"
)

// eras are served by servers of their own behind ours.
var eras = map[string]*mcp.StreamableHTTPOptions{sessions: nil, without: {Stateless: true, PropagateRequestCancellation: true}}

// provided is a real MCP server with a bit of everything.
type provided struct {
	url     string
	effects atomic.Int64  // of write
	hanging chan struct{} // a call of hang has begun
	ended   chan struct{} // it was cancelled
	down    atomic.Bool   // it answers nobody
}

const (
	givenSchema  = `{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}},"x-more":[1.10,"é"]}`
	givenOutput  = `{"type":"object","properties":{"id":{"type":"integer"}}}`
	givenContent = `{"id":9007199254740993,"small":1e-7,"list":[null,true]}`
)

func provide(t *testing.T, opts *mcp.StreamableHTTPOptions) *provided {
	t.Helper()
	p := &provided{hanging: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
	server := mcp.NewServer(&mcp.Implementation{Name: "provided", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}},
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{r.Params.Ref.Name + "=" + r.Params.Argument.Value}}}, nil
		}})
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	open := json.RawMessage(`{"type":"object"}`)
	server.AddTool(&mcp.Tool{Name: "give", Title: "Give <it>", Annotations: reads, InputSchema: json.RawMessage(givenSchema), OutputSchema: json.RawMessage(givenOutput)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Meta: mcp.Meta{"example.com/n": "v"}, StructuredContent: json.RawMessage(givenContent), Content: []mcp.Content{
				&mcp.TextContent{Text: "a <b> & \u2028 c", Meta: mcp.Meta{"k": "v"}}, &mcp.ImageContent{Data: []byte{0, 255}, MIMEType: "image/png"}}}, nil
		})
	server.AddTool(&mcp.Tool{Name: "fail", Annotations: reads, InputSchema: open}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "it failed"}}}, nil
	})
	server.AddTool(&mcp.Tool{Name: "work", Annotations: reads, InputSchema: open}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1), Total: 3}); err != nil {
				return nil, err
			}
			if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "warning", Data: i + 1}); err != nil {
				return nil, err
			}
		}
		return &mcp.CallToolResult{}, nil
	})
	server.AddTool(&mcp.Tool{Name: "hang", Annotations: reads, InputSchema: open}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p.hanging <- struct{}{}
		<-ctx.Done()
		p.ended <- struct{}{}
		return nil, ctx.Err()
	})
	server.AddTool(&mcp.Tool{Name: "write", InputSchema: open}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("effect ", p.effects.Add(1), " ", string(r.Params.Arguments))}}}, nil
	})
	ask := func(name string, request mcp.InputRequest) {
		server.AddTool(&mcp.Tool{Name: name, Annotations: reads, InputSchema: open}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if len(r.Params.InputResponses) == 0 {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"it": request}}, nil
			}
			raw, err := json.Marshal(r.Params.InputResponses["it"])
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}}, err
		})
	}
	ask("elicit", &mcp.ElicitParams{Message: "who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
	ask("sample", &mcp.CreateMessageParams{MaxTokens: 10, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello?"}}}})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: "of " + r.Params.URI}}}, nil
	}
	for _, uri := range []string{"file:///open/a.txt", "file:///closed/b.txt"} {
		server.AddResource(&mcp.Resource{Name: uri, URI: uri}, read)
	}
	server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "any", URITemplate: "file:///{dir}/{name}"}, read)
	for _, name := range []string{"hello", "secret"} {
		server.AddPrompt(&mcp.Prompt{Name: name}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: name}}}}, nil
		})
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, opts)
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		at.CloseClientConnections()
		at.Close()
		for s := range server.Sessions() {
			_ = s.Close() // nobody comes back to end it
		}
	})
	p.url = at.URL
	return p
}

// mcpWorld is a world with external agents.
type mcpWorld struct {
	*world
	tokens map[string]string // by agent's name
}

func newMCPWorld(t *testing.T, change func(*gateway.Config)) *mcpWorld {
	t.Helper()
	w := &mcpWorld{world: newWorldAround(t), tokens: map[string]string{}}
	w.gateway = change
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// connect adds an MCP server, and waits until its tools are known.
func (w *mcpWorld) provider(name, url string, tools int) {
	w.t.Helper()
	must(w.t, w.PutConnection(w.t.Context(), connection.Defined{Connection: id.Connection("con_" + name), Type: connection.MCP, URL: url, Private: []string{hostport(url)}, Trusted: true}, ""))
	buskit.Eventually(w.t, "the tools of "+name+" are listed", func() bool {
		all, err := w.Connections(w.t.Context())
		i := slices.IndexFunc(all, func(c client.Connection) bool { return id.Name(c.Connection) == name })
		return err == nil && i >= 0 && len(all[i].Tools) == tools
	})
}

// agent makes an external agent with a token.
func (w *mcpWorld) agent(name string) {
	w.t.Helper()
	must(w.t, w.PutAgent(w.t.Context(), agent.Defined{Agent: id.Agent("agt_" + name), Hosting: agent.External}, ""))
	w.token(name)
}

// token makes one more token of an agent.
func (w *mcpWorld) token(name string) client.Issued {
	w.t.Helper()
	issued, err := w.CreateToken(w.t.Context(), client.NewToken{Agent: id.Agent("agt_" + name)})
	must(w.t, err)
	w.tokens[name] = issued.Secret
	return issued
}

// grant lets an agent call, without asking anybody unless change says so.
func (w *mcpWorld) grant(to, name, tool string, change ...func(*grant.Created)) {
	w.t.Helper()
	g := grant.Created{Grant: id.Grant("grt_" + name), Agent: id.Agent("agt_" + to), Approval: grant.Never, Selector: grant.Selector{Tool: tool}}
	for _, c := range change {
		c(&g)
	}
	must(w.t, w.PutGrant(w.t.Context(), g))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bearer adds a token to every request, and remembers what came back.
type bearer struct {
	token string
	mu    sync.Mutex
	said  bytes.Buffer // the bodies of all answers
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(resp.Body, b), resp.Body}
	}
	return resp, err
}

// Write notes what was answered.
func (b *bearer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.Write(p)
}

func (b *bearer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.String()
}

// dial connects the official SDK's client in one era.
func (w *mcpWorld) dial(t *testing.T, as, era, path string, opts *mcp.ClientOptions) (*mcp.ClientSession, *bearer) {
	t.Helper()
	b := &bearer{token: w.tokens[as]}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: w.endpoints.API + path, HTTPClient: &http.Client{Transport: b}}, &mcp.ClientSessionOptions{ProtocolVersion: era})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() }) // it may have been ended for it
	if got := s.InitializeResult().ProtocolVersion; got != era {
		t.Fatalf("the era is %s, want %s", got, era)
	}
	return s, b
}

// recorded gives the events of a kind that are about a call, once the ledger has any.
func (w *mcpWorld) recorded(t *testing.T, kind string, enough func([]schemas.Event) bool) (all []schemas.Event) {
	t.Helper()
	buskit.Eventually(t, "the ledger has "+kind, func() bool {
		all = nil
		for at, more := (client.Cursor{}), true; more; {
			page, err := w.Events(t.Context(), client.Filter{Kind: kind}, at)
			if err != nil {
				return false
			}
			for _, e := range page.Events {
				envelope, err := e.Envelope()
				must(t, err)
				ev, err := envelope.Decode()
				must(t, err)
				all = append(all, ev)
			}
			at, more = page.Next, page.More
		}
		return enough(all)
	})
	return all
}

func some(of string) func([]schemas.Event) bool {
	return func(all []schemas.Event) bool {
		return slices.ContainsFunc(all, func(ev schemas.Event) bool { return toolOf(ev) == of })
	}
}

func toolOf(ev schemas.Event) string {
	switch ev := ev.(type) {
	case call.Refused:
		return ev.Tool
	case call.Asked:
		return ev.Tool
	case call.Answered:
		return ev.Tool
	case call.Cancelled:
		return ev.Tool
	case call.Unknown:
		return ev.Tool
	case call.Finished:
		return ev.Tool
	case call.Failed:
		return ev.Tool
	}
	return ""
}

// post sends one message as it is, and gives status and answer.
func (w *mcpWorld) post(t *testing.T, as, era, body string, change ...func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.endpoints.API+"/mcp", strings.NewReader(body))
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+w.tokens[as])
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if era != "" {
		r.Header.Set("Mcp-Protocol-Version", era)
	}
	for _, c := range change {
		c(r)
	}
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	must(t, err)
	return resp.StatusCode, string(raw), resp.Header
}

// modernMeta is what every request of the era without sessions says of itself.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// many serves so many tools that cost nothing, with descriptions of some length.
func many(t *testing.T, n int) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "many", Version: "1"}, nil)
	for i := range n {
		server.AddTool(&mcp.Tool{Name: fmt.Sprintf("tool_%03d", i), Description: strings.Repeat("about it ", 100), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
	}
	at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, eras[without]))
	t.Cleanup(func() { at.CloseClientConnections(); at.Close() })
	return at.URL
}
