package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	said "github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// asking is a client that answers what it is asked.
func asking(conversation id.Run, answer func()) *upstream.Client {
	return &upstream.Client{Client: said.Client{Protocol: "2025-11-25", Capabilities: json.RawMessage(`{"elicitation":{}}`)}, Conversation: conversation,
		Say: func(string, json.RawMessage) {},
		Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			answer()
			return json.RawMessage(`{"action":"accept","content":{"name":"ada"}}`), nil
		}}
}

func question() *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: "who are you?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)}
}

func text(words ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(words...)}}}
}

// What a server asks in a call may wait for a person for as long as it takes, whoever else comes meanwhile: the session is there still.
func TestQuestionOutlastsIdleness(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "ask"}, func(ctx context.Context, r *sdk.CallToolRequest, _ map[string]any) (*sdk.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(ctx, question())
		if err != nil {
			return nil, nil, err
		}
		return text(answer.Content["name"], " in ", r.Session.ID()), nil, nil
	})
	p := behind(t, server, nil)
	asked := 0
	client := asking("mcp_one", func() {
		asked++
		p.AnHourLater()
	})
	seen := map[string]bool{}
	for range 2 {
		got, err := p.Call(t.Context(), upstream.Call{Call: "call_1", Tool: "ask", Args: json.RawMessage(`{}`), Effect: "e", Client: client})
		if err != nil || !strings.Contains(string(got.Content), "ada in ") {
			t.Fatalf("%s, %v", got.Content, err)
		}
		seen[string(got.Content)] = true
	}
	if asked != 2 || len(seen) != 1 {
		t.Errorf("asked %d times, in %v", asked, seen)
	}
}

// A server may ask beside the call's stream, as those of the TypeScript SDK do, and its stream may break meanwhile.
func TestQuestionBesideTheCall(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "ask"}, func(ctx context.Context, r *sdk.CallToolRequest, _ map[string]any) (*sdk.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(context.Background(), question()) // of no request
		for err != nil && strings.Contains(err.Error(), "not connected") && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond) // this SDK's servers do not keep it until there is a stream
			answer, err = r.Session.Elicit(context.Background(), question())
		}
		if err != nil {
			return nil, nil, err
		}
		return text(answer.Content["name"]), nil, nil
	})
	next := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	var cut atomic.Int64
	at, streams := front(t, next, func(w http.ResponseWriter, r *http.Request) {
		if cut.Add(1) <= 2 { // in the middle of an event
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("event: message\ndata: {\"jsonrpc\""))
			return
		}
		next.ServeHTTP(w, r)
	})
	p := provider(t, at.URL)
	asked := 0
	client := asking("mcp_one", func() { asked++ })
	for range 2 {
		got, err := p.Call(t.Context(), upstream.Call{Call: "call_1", Tool: "ask", Args: json.RawMessage(`{}`), Effect: "e", Client: client})
		if err != nil || got.ToolError || !strings.Contains(string(got.Content), "ada") {
			t.Fatalf("%s, %v", got.Content, err)
		}
	}
	if asked != 2 || streams.Load() != 3 {
		t.Errorf("asked %d times, over %d streams", asked, streams.Load())
	}
}

// Of two calls that are under way, a question beside both could be either's: nobody is asked.
func TestQuestionThatCouldBeOfTwoCalls(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
	begun, over := make(chan struct{}), make(chan struct{})
	sdk.AddTool(server, &sdk.Tool{Name: "wait"}, func(context.Context, *sdk.CallToolRequest, map[string]any) (*sdk.CallToolResult, any, error) {
		close(begun)
		<-over
		return text("waited"), nil, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "ask"}, func(_ context.Context, r *sdk.CallToolRequest, _ map[string]any) (*sdk.CallToolResult, any, error) {
		_, err := r.Session.Elicit(context.Background(), question())
		return text(err), nil, nil
	})
	p := behind(t, server, nil)
	client := func() *upstream.Client {
		return asking("mcp_one", func() { t.Error("somebody is asked") })
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := p.Call(t.Context(), upstream.Call{Call: "call_1", Tool: "wait", Args: json.RawMessage(`{}`), Effect: "e", Client: client()})
		waiting <- err
	}()
	<-begun
	got, err := p.Call(t.Context(), upstream.Call{Call: "call_2", Tool: "ask", Args: json.RawMessage(`{}`), Effect: "f", Client: client()})
	if err != nil || !strings.Contains(string(got.Content), "stream of one") {
		t.Errorf("%s, %v", got.Content, err)
	}
	close(over)
	if err := <-waiting; err != nil {
		t.Error(err)
	}
}

// A server without such a stream is asked for it once, and a call needs none.
func TestNoStreamBeside(t *testing.T) {
	for name, status := range map[string]int{"405": 405, "404": 404, "a page": 200} {
		server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
		tool(server, "one", "x")
		at, streams := front(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
		})
		p := provider(t, at.URL)
		client := asking("mcp_one", func() { t.Error("somebody is asked") })
		for range 3 {
			if _, err := p.Call(t.Context(), upstream.Call{Call: "call_1", Tool: "one", Args: json.RawMessage(`{}`), Effect: "e", Client: client}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if n := streams.Load(); n > 1 {
			t.Errorf("%s: asked %d times", name, n)
		}
	}
}
