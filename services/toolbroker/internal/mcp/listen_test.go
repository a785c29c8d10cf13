package mcp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/services/toolbroker/internal/mcp"
)

func init() { mcp.Hurry() }

// front stands before a real server and does to its streams what it is told.
func front(t *testing.T, next http.Handler, stream http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var streams atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen" {
			streams.Add(1)
			if stream != nil {
				stream(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server, &streams
}

func tool(server *sdk.Server, name, description string) {
	sdk.AddTool(server, &sdk.Tool{Name: name, Description: description}, func(context.Context, *sdk.CallToolRequest, map[string]any) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{}, nil, nil
	})
}

// News of both eras of the protocol arrive, and what is listed then is new.
func TestListen(t *testing.T) {
	for name, opts := range map[string]*sdk.StreamableHTTPOptions{"2025-11-25": nil, "2026-07-28": {Stateless: true}} {
		t.Run(name, func(t *testing.T) {
			server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
			tool(server, "one", "x")
			at, streams := front(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, opts), nil)
			p := provider(t, at.URL)
			var news atomic.Int64
			p.Listen(func() { news.Add(1) })
			if tools, err := p.Tools(t.Context()); err != nil || len(tools) != 1 {
				t.Fatalf("%v, %v", tools, err)
			}
			buskit.Eventually(t, "the stream is open", func() bool { return streams.Load() > 0 })
			looks := 0
			buskit.Eventually(t, "the news arrive", func() bool {
				if looks++; looks%20 == 1 { // a server that changes all the time waits with its news until it stops
					tool(server, "two", time.Now().String())
				}
				return news.Load() > 0
			})
			if tools, err := p.Tools(t.Context()); err != nil || len(tools) != 2 {
				t.Errorf("after the news: %v, %v", tools, err)
			}
			// Many at once are few.
			before := news.Load()
			for range 200 {
				tool(server, "two", time.Now().String())
			}
			buskit.Eventually(t, "the news arrive", func() bool { return news.Load() > before })
			if n := news.Load() - before; n > 20 {
				t.Errorf("200 changes are told %d times", n)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A stream that breaks is made again; what was missed meanwhile is looked up. Calls do not notice.
func TestStreamThatBreaks(t *testing.T) {
	s := serve(t)
	p := provider(t, "http://"+s.at)
	var news atomic.Int64
	p.Listen(func() { news.Add(1) })
	buskit.Eventually(t, "somebody listens", func() bool {
		for range s.sdk.Sessions() {
			return true
		}
		return false
	})
	if _, err := call(t, p, "pay", `{}`); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.start()
	buskit.Eventually(t, "what was missed is looked up", func() bool { return news.Load() > 0 })
	buskit.Eventually(t, "news arrive again", func() bool {
		before := news.Load()
		tool(s.sdk, "new", time.Now().String())
		time.Sleep(20 * time.Millisecond)
		return news.Load() > before
	})
	if _, err := call(t, p, "pay", `{}`); err != nil {
		t.Errorf("a call meanwhile: %v", err)
	}
}

// Servers that have no stream, or a strange one, work as they did.
func TestServersWithoutStream(t *testing.T) {
	for name, c := range map[string]struct {
		stream http.HandlerFunc
		once   bool // it is asked once, and left alone then
	}{
		"405":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, true},
		"404":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, true},
		"a page":       {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/html") }, true},
		"500":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, false},
		"no beginning": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false},
		"cut at once": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
		}, false},
		"no events but garbage": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"jsonrpc\":7}\n\ndata: <html>\n\n"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
			tool(server, "one", "x")
			at, streams := front(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil), c.stream)
			p := provider(t, at.URL)
			p.Listen(func() {})
			buskit.Eventually(t, "it is asked for a stream", func() bool { return streams.Load() > 0 })
			for range 3 {
				if _, err := call(t, p, "one", `{}`); err != nil {
					t.Fatal(err)
				}
			}
			if !c.once {
				buskit.Eventually(t, "it is asked again", func() bool { return streams.Load() > 1 })
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if n := streams.Load(); c.once && n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}
