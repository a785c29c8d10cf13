package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/services/toolbroker/internal/mcp"
)

var protocols = map[string]*sdk.StreamableHTTPOptions{"2025-11-25": nil, "2026-07-28": {Stateless: true, PropagateRequestCancellation: true}}

// tells is a server that tells of its resources, except of one.
func tells() (server *sdk.Server, asked, ended *atomic.Int64) {
	asked, ended = &atomic.Int64{}, &atomic.Int64{}
	server = sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, &sdk.ServerOptions{
		SubscribeHandler: func(_ context.Context, r *sdk.SubscribeRequest) error {
			if r.Params.URI == "x:refused" {
				return errors.New("not that one")
			}
			asked.Add(1)
			return nil
		},
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { ended.Add(1); return nil }})
	server.AddResource(&sdk.Resource{Name: "r", URI: "x:r"}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{}, nil
	})
	return server, asked, ended
}

// heard counts what was told, by URI.
type heard struct {
	mu sync.Mutex
	of map[string]int
}

func (h *heard) add(uri string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[string]int{}
	}
	h.of[uri]++
}

func (h *heard) count(uri string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[uri]
}

func watching(t *testing.T, url string) (*mcp.Provider, *heard) {
	t.Helper()
	p, h := provider(t, url), &heard{}
	p.Watching(h.add)
	return p, h
}

func update(t *testing.T, server *sdk.Server, uri string) {
	t.Helper()
	if err := server.ResourceUpdated(t.Context(), &sdk.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
}

// A watch holds once the server has agreed: the next change is told, without looking twice. Many are one session, and in the newer
// protocol one stream. What is watched no more is not told, and the last one ends the session.
func TestWatch(t *testing.T) {
	const many = 300
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			server, asked, ended := tells()
			at, streams := front(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, opts), nil)
			p, told := watching(t, at.URL)
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					if err := p.Watch(t.Context(), fmt.Sprint("x:", i)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for i := range many {
				update(t, server, fmt.Sprint("x:", i))
			}
			buskit.Eventually(t, "each is told", func() bool {
				for i := range many {
					if told.count(fmt.Sprint("x:", i)) == 0 {
						return false
					}
				}
				return true
			})
			if n := streams.Load(); n > many/2 {
				t.Errorf("%d streams for %d resources", n, many)
			}
			before := asked.Load()
			if err := p.Watch(t.Context(), "x:1"); err != nil || asked.Load() != before {
				t.Errorf("one that is watched is asked for again: %v", err)
			}
			left := ended.Load()
			p.Unwatch("x:1")
			buskit.Eventually(t, "the server is told", func() bool { return ended.Load() > left })
			// It is asked for and left and asked for at once: the last word counts.
			p.Unwatch("x:2")
			if err := p.Watch(t.Context(), "x:2"); err != nil {
				t.Fatal(err)
			}
			update(t, server, "x:1")
			again := told.count("x:2")
			update(t, server, "x:2")
			buskit.Eventually(t, "it is told", func() bool { return told.count("x:2") > again })
			if n := told.count("x:1"); n != 1 {
				t.Errorf("told %d times of what is watched no more", n)
			}
			for i := range many {
				p.Unwatch(fmt.Sprint("x:", i))
			}
			buskit.Eventually(t, "the session is ended", func() bool {
				for range server.Sessions() {
					return false
				}
				return true
			})
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a server refuses is refused alone, and may be asked for again.
func TestWatchRefused(t *testing.T) {
	server, _, _ := tells()
	at, _ := front(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil), nil)
	p, told := watching(t, at.URL)
	if err := p.Watch(t.Context(), "x:a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Watch(t.Context(), "x:refused"); problem.CodeOf(err) != problem.Upstream {
			t.Errorf("%v", err)
		}
	}
	update(t, server, "x:a")
	buskit.Eventually(t, "the other is told", func() bool { return told.count("x:a") > 0 })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Watch(t.Context(), "x:b"); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("of a closed connection: %v", err)
	}
}

// Servers that tell nothing, or whose stream is strange, are said to be so at once, and serve calls as they did.
func TestWatchWhereNothingIsTold(t *testing.T) {
	silent := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
	tool(silent, "one", "x")
	telling, _, _ := tells()
	tool(telling, "one", "x")
	events := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte(body))
		}
	}
	for era, opts := range protocols {
		for name, c := range map[string]struct {
			server *sdk.Server
			stream http.HandlerFunc
			code   problem.Code
		}{
			"it does not offer it": {silent, nil, problem.Invalid},
			"no stream":            {telling, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, problem.Invalid},
			"500":                  {telling, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, problem.Unavailable},
			"no beginning": {telling, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // only then is it seen that the client is gone
				<-r.Context().Done()
			}, problem.Unavailable},
		} {
			t.Run(era+" "+name, func(t *testing.T) {
				at, _ := front(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return c.server }, opts), c.stream)
				p, _ := watching(t, at.URL)
				if err := p.Watch(t.Context(), "x:a"); problem.CodeOf(err) != c.code {
					t.Errorf("%v", err)
				}
				if _, err := call(t, p, "one", `{}`); err != nil {
					t.Errorf("a call: %v", err)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		// What it agrees to it has to name: another's resource, or garbage, is no agreement.
		if opts == nil {
			continue
		}
		for name, body := range map[string]string{
			"cut at once":                "",
			"garbage":                    "data: {\"jsonrpc\":7}\n\ndata: <html>\n\n",
			"it agrees to another":       "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"notifications\":{\"resourceSubscriptions\":[\"x:other\"]}}}\n\n",
			"it agrees without a filter": "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{}}\n\n",
		} {
			t.Run(era+" "+name, func(t *testing.T) {
				at, _ := front(t, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return telling }, opts), events(body))
				p, told := watching(t, at.URL)
				if err := p.Watch(t.Context(), "x:a"); err == nil {
					t.Error("it is believed")
				}
				if told.count("x:a") != 0 {
					t.Error("something is told")
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A server that was away is asked again for what it had agreed to, and what it may have said meanwhile is told.
func TestWatchOutlivesItsServer(t *testing.T) {
	server, asked, _ := tells()
	var away atomic.Bool
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, protocols["2026-07-28"])
	at, _ := front(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	}), nil)
	p, told := watching(t, at.URL)
	if err := p.Watch(t.Context(), "x:a"); err != nil {
		t.Fatal(err)
	}
	away.Store(true)
	at.CloseClientConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	buskit.Eventually(t, "nothing new is agreed to", func() bool { return problem.CodeOf(p.Watch(ctx, "x:b")) == problem.Unavailable })
	if err := p.Watch(t.Context(), "x:a"); err != nil {
		t.Errorf("what was agreed to before: %v", err)
	}
	before := asked.Load()
	away.Store(false)
	buskit.Eventually(t, "it is asked for again, and told", func() bool { return asked.Load() > before && told.count("x:a") > 0 })
	if told.count("x:b") != 0 {
		t.Error("told of what was refused")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
