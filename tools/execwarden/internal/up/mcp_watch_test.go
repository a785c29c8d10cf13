package up

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/grant"
)

// changing is a real MCP server whose resources change, and which can be started anew.
type changing struct {
	t      *testing.T
	opts   *mcp.StreamableHTTPOptions
	front  *httptest.Server
	mu     sync.Mutex
	server *mcp.Server
	now    http.Handler
	asked  atomic.Int64 // subscriptions, of both protocols
}

func change(t *testing.T, opts *mcp.StreamableHTTPOptions) *changing {
	t.Helper()
	c := &changing{t: t, opts: opts}
	c.begin()
	c.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		now := c.now
		c.mu.Unlock()
		now.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { c.end(); c.front.CloseClientConnections(); c.front.Close() })
	return c
}

func (c *changing) begin() {
	taken := func(context.Context, *mcp.SubscribeRequest) error { c.asked.Add(1); return nil }
	server := mcp.NewServer(&mcp.Implementation{Name: "changing", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler: taken, UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil }})
	for _, name := range []string{"a", "b", "mark", "closed"} {
		server.AddResource(&mcp.Resource{Name: name, URI: "file:///" + name}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "x"}}}, nil
		})
	}
	server.AddTool(&mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.now = server, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, c.opts)
}

func (c *changing) end() {
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	for s := range server.Sessions() {
		_ = s.Close() // nobody comes back to end it
	}
}

// again is a new process at the old address: it knows no session and no subscription.
func (c *changing) again() {
	c.end()
	c.begin()
	c.front.CloseClientConnections()
}

func (c *changing) update(uri string) {
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	must(c.t, server.ResourceUpdated(c.t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: uri}))
}

// told counts what a client is told, by URI.
type told struct {
	mu sync.Mutex
	of map[string]int
}

func (d *told) handler(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string]int{}
	}
	d.of[r.Params.URI]++
}

func (d *told) count(uri string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of[uri]
}

// hears says that a client is told of a change of a resource, sooner or later: the stream of the newer protocol is not waited for
// by its client.
func (c *changing) hears(d *told, uri string) {
	c.t.Helper()
	before, looks := d.count(uri), 0
	buskit.Eventually(c.t, "the change of "+uri+" is told", func() bool {
		if looks++; looks%25 == 1 {
			c.update(uri)
		}
		return d.count(uri) > before
	})
}

// deaf says that a client is told nothing of a resource, although it is told of all that came after: twice, since what came at once
// is told in any order.
func (c *changing) deaf(d *told, uri, why string) {
	c.t.Helper()
	before := d.count(uri)
	for range 2 {
		c.update(uri)
		c.hears(d, "file:///mark")
	}
	if n := d.count(uri) - before; n != 0 {
		c.t.Errorf("%s: told %d times of %s", why, n, uri)
	}
}

// A client that subscribed to a resource is told when it changes, in all pairs of the protocols; not after it unsubscribed, not of
// what its agent may not read, not after a revocation, and nobody else is.
func TestMCPResourceSubscriptions(t *testing.T) {
	w := newMCPWorld(t, nil)
	n := 0
	for behind, opts := range eras {
		for _, era := range []string{sessions, without} {
			n++
			name := fmt.Sprint("s", n)
			t.Run(era+" before "+behind, func(t *testing.T) {
				c := change(t, opts)
				w.provider(name, c.front.URL, 1)
				for _, a := range []string{"x", "y"} {
					w.agent(a + name)
					for _, uri := range []string{"a", "b", "mark"} {
						w.grant(a+name, a+uri+name, name+".resources/read", func(g *grant.Created) { g.Selector.URIs = []string{"file:///" + uri} })
					}
				}
				var x, y told
				sx, _ := w.dial(t, "x"+name, era, "/mcp", &mcp.ClientOptions{ResourceUpdatedHandler: x.handler})
				sy, _ := w.dial(t, "y"+name, era, "/mcp/c/"+name, &mcp.ClientOptions{ResourceUpdatedHandler: y.handler})
				if caps := sx.InitializeResult().Capabilities; caps.Resources == nil || !caps.Resources.Subscribe {
					t.Fatalf("not offered: %+v", caps)
				}
				sub := func(s *mcp.ClientSession, uri string) {
					t.Helper()
					must(t, s.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}))
				}
				buskit.Eventually(t, "the grants are known", func() bool {
					list, err := sx.ListResources(t.Context(), nil)
					other, also := sy.ListResources(t.Context(), nil)
					return err == nil && also == nil && len(list.Resources) == 3 && len(other.Resources) == 3
				})
				for _, uri := range []string{"file:///a", "file:///b", "file:///mark"} {
					sub(sx, uri)
				}
				sub(sy, "file:///mark")
				for _, uri := range []string{"file:///a", "file:///b", "file:///mark"} {
					c.hears(&x, uri)
				}
				c.hears(&y, "file:///mark")
				c.deaf(&y, "file:///a", "another agent, which may read it and did not subscribe")
				c.deaf(&x, "file:///closed", "not subscribed to")
				// What may not be read is not subscribed to, and the answer says so.
				if era == sessions {
					if code, data := wire(t, sx.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "file:///closed"})); code != -32602 && (code != -32050 || data.Code != "denied") {
						t.Errorf("%d %+v", code, data)
					}
					if code, data := wire(t, sy.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "file:///closed"})); code != -32050 || data.Code != "denied" {
						t.Errorf("%d %+v", code, data)
					}
				} else {
					status, said, _ := w.post(t, "y"+name, without, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{`+modernMeta+`,"notifications":{"resourceSubscriptions":["file:///closed"]}}}`, func(r *http.Request) {
						r.Header.Set("Mcp-Method", "subscriptions/listen")
						r.URL.Path = "/mcp/c/" + name
					})
					if !strings.Contains(said, `"code":-32050`) || !strings.Contains(said, `"denied"`) {
						t.Errorf("%d %s", status, said)
					}
				}
				must(t, sx.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "file:///b"}))
				if era == without { // which its client does not wait for
					c.hears(&x, "file:///mark")
				}
				c.deaf(&x, "file:///b", "after it unsubscribed")
				// A server that was started anew is asked again. What was missed meanwhile is told; so is what comes after.
				before, asked := x.count("file:///a"), c.asked.Load()
				c.again()
				buskit.Eventually(t, "what may have been missed is told", func() bool { return x.count("file:///a") > before && c.asked.Load() > asked })
				c.hears(&x, "file:///a")
				_, err := w.Revoke(t.Context(), "xa"+name, "enough")
				must(t, err)
				c.deaf(&x, "file:///a", "after the revocation")
				sub(sy, "file:///a")
				c.hears(&y, "file:///a")
				if era == sessions {
					must(t, sy.Close())
				}
			})
		}
	}
}
