package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// jobs is a server whose tools the suite's scenarios of the tasks extension call: work that takes a while, fails, or asks. It knows
// nothing of tasks: ExecWarden makes them. It is served with sessions, where it asks while it works, and without, where it asks first.
type jobs struct {
	server http.Server
	at     string // URL, without the era's path
	ended  chan error
}

// Paths of the two eras.
const (
	askingJobs  = "/asking"
	roundedJobs = "/rounds"
)

func openJobs() (*jobs, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	j := &jobs{at: "http://" + l.Addr().String(), ended: make(chan error, 1)}
	work, asks := jobServer(), jobServer()
	addAsking(asks)
	addRounds(work)
	mux := http.NewServeMux()
	mux.Handle(askingJobs, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return asks }, nil))
	mux.Handle(roundedJobs, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return work }, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}))
	j.server.Handler = mux
	go func() { j.ended <- j.server.Serve(l) }()
	return j, nil
}

func (j *jobs) close() error {
	if j == nil {
		return nil
	}
	_ = j.server.Close() // it has nothing to keep
	if err := <-j.ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// jobServer has the tools that ask nothing.
func jobServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "jobs", Version: "1"}, nil)
	job(s, "greet", func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Name string `json:"name"`
	}) (*mcp.CallToolResult, error) {
		return said("Hello, " + in.Name + "!"), nil
	})
	job(s, "slow_compute", func(ctx context.Context, _ *mcp.CallToolRequest, in struct {
		Seconds int    `json:"seconds"`
		Label   string `json:"label,omitempty"`
	}) (*mcp.CallToolResult, error) {
		return said(fmt.Sprintf("computed for %d s", in.Seconds)), rest(ctx, time.Duration(in.Seconds)*time.Second)
	})
	job(s, "failing_job", func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, error) {
		out := said("it failed")
		out.IsError = true
		return out, rest(ctx, time.Second)
	})
	job(s, "protocol_error_job", func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, error) {
		if err := rest(ctx, time.Second); err != nil {
			return nil, err
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "it broke"}
	})
	return s
}

// job adds a tool. All only read, so that one that is cancelled had no effect.
func job[In any](s *mcp.Server, name string, do func(context.Context, *mcp.CallToolRequest, In) (*mcp.CallToolResult, error)) {
	mcp.AddTool(s, &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(ctx context.Context, r *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
			out, err := do(ctx, r, in)
			return out, nil, err
		})
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// addAsking adds what asks while it works.
func addAsking(s *mcp.Server) {
	ask := func(ctx context.Context, r *mcp.CallToolRequest, what string) error {
		_, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: what, RequestedSchema: json.RawMessage(`{"type":"object","properties":{"confirm":{"type":"boolean"}}}`)})
		return err
	}
	job(s, "confirm_delete", func(ctx context.Context, r *mcp.CallToolRequest, in struct {
		Filename string `json:"filename"`
	}) (*mcp.CallToolResult, error) {
		return said("deleted " + in.Filename), ask(ctx, r, "Delete "+in.Filename+"?")
	})
	job(s, "multi_input", func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, error) {
		var both sync.WaitGroup
		var first, second error
		both.Go(func() { first = ask(ctx, r, "The first?") })
		both.Go(func() { second = ask(ctx, r, "The second?") })
		both.Wait()
		return said("answered"), errors.Join(first, second)
	})
}

// addRounds adds what asks by its result, before it works.
func addRounds(s *mcp.Server) {
	job(s, "test_tool_with_task", func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, error) {
		answer, ok := r.Params.InputResponses["user_name"].(*mcp.ElicitResult)
		if !ok {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"user_name": &mcp.ElicitParams{Message: "Who?",
				RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)}}}, nil
		}
		return said(fmt.Sprintf("Hello, %v!", answer.Content["name"])), rest(ctx, time.Second)
	})
}
