package callpath

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/tools/sample/loopback"
)

// provider is an MCP server on this machine whose tools cost next to nothing.
type provider struct {
	loopback.Server
	hanging  atomic.Int64 // calls of hang that have not returned
	released atomic.Pointer[chan struct{}]
	read     atomic.Int64 // when read was called last, in nanoseconds of Unix time
}

// query is the argument of every tool.
type query struct {
	Text string `json:"text"`
}

// found is what every tool answers.
type found struct {
	Text string `json:"text"`
}

// newProvider has so many tools besides, which nobody calls. It speaks MCP up to a version; empty: any.
func newProvider(more int, newest string) *provider {
	p := &provider{}
	p.release()
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	closed := false
	mcp.AddTool(server, &mcp.Tool{Name: "read", Description: "Answers at once, and changes nothing.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &closed}}, func(ctx context.Context, r *mcp.CallToolRequest, q query) (*mcp.CallToolResult, found, error) {
		p.read.Store(time.Now().UnixNano())
		return answer(ctx, r, q)
	})
	mcp.AddTool(server, &mcp.Tool{Name: "write", Description: "Answers at once; repeating it changes nothing more.",
		Annotations: &mcp.ToolAnnotations{IdempotentHint: true, DestructiveHint: &closed, OpenWorldHint: &closed}}, answer)
	mcp.AddTool(server, &mcp.Tool{Name: "hang", Description: "Answers when it is released.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &closed}}, p.hang)
	for i := range more {
		mcp.AddTool(server, &mcp.Tool{Name: fmt.Sprintf("more_%03d", i), Description: "Answers at once.",
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &closed}}, answer)
	}
	serve := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	p.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked := r.Header.Get("Mcp-Protocol-Version"); newest != "" && asked > newest {
			http.Error(w, "Bad Request: Unsupported protocol version "+asked, http.StatusBadRequest) // as servers of that time say it
			return
		}
		serve.ServeHTTP(w, r)
	})
	return p
}

func answer(_ context.Context, _ *mcp.CallToolRequest, q query) (*mcp.CallToolResult, found, error) {
	return nil, found{Text: "found " + q.Text}, nil
}

func (p *provider) hang(_ context.Context, _ *mcp.CallToolRequest, _ query) (*mcp.CallToolResult, found, error) {
	p.hanging.Add(1)
	defer p.hanging.Add(-1)
	<-*p.released.Load() // without sessions a server does not learn that its client gave up
	return nil, found{}, nil
}

// release lets the calls that hang answer, whoever still waits for them.
func (p *provider) release() {
	next := make(chan struct{})
	if old := p.released.Swap(&next); old != nil {
		close(*old)
	}
}

// Close ends the provider.
func (p *provider) Close() error {
	p.release()
	return p.Server.Close()
}

// direct calls the provider as a client without ExecWarden would.
type direct struct{ session *mcp.ClientSession }

func newDirect(ctx context.Context, url string) (*direct, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "direct", Version: "1"}, nil)
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{}, DisableStandaloneSSE: true}, nil)
	if err != nil {
		return nil, err
	}
	return &direct{s}, nil
}

func (d *direct) call(ctx context.Context, _ int) error {
	_, err := d.session.CallTool(ctx, &mcp.CallToolParams{Name: "read", Arguments: args})
	return err
}
