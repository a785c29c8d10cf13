package up

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// A client that reads nothing of what its calls say holds up neither their server nor anybody else. What waits for it is bounded:
// TestWordsAreBounded, in the gateway.
func TestMCPClientThatNeverReads(t *testing.T) {
	const deaf, words, size = 2, 30, 100 << 10 // each more than its socket holds
	w := newMCPWorld(t, nil)
	var shouted atomic.Int64
	server := mcp.NewServer(&mcp.Implementation{Name: "loud", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "shout", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			word := strings.Repeat("x", size)
			for i := range words {
				if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Message: word}); err != nil {
					return nil, err
				}
			}
			shouted.Add(1)
			return &mcp.CallToolResult{}, nil
		})
	at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, eras[without]))
	t.Cleanup(func() { at.CloseClientConnections(); at.Close() })
	w.provider("loud", at.URL, 1)
	p := provide(t, eras[without])
	w.provider("s", p.url, 7)
	w.agent("a")
	w.agent("b")
	w.grant("a", "shout", "loud.shout")
	w.grant("b", "give", "s.give")
	served := func() bool {
		status, said, _ := w.post(t, "b", without, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__give","arguments":{},%s}}`, modernMeta), func(r *http.Request) {
			r.Header.Set("Mcp-Method", "tools/call")
			r.Header.Set("Mcp-Name", "s__give")
		})
		return status == http.StatusOK && strings.Contains(said, "structuredContent")
	}
	buskit.Eventually(t, "another is served", served)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"loud__shout","arguments":{},"_meta":{"progressToken":"p",` + modernMeta[len(`"_meta":{`):] + `}}`
	for range deaf {
		conn, err := net.Dial("tcp", hostport(w.endpoints.API))
		must(t, err)
		defer conn.Close()
		must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: loud__shout\r\nContent-Length: %d\r\n\r\n%s",
			hostport(w.endpoints.API), w.tokens["a"], without, len(body), body)
		must(t, err)
	}
	buskit.Eventually(t, "the server has said everything", func() bool { return shouted.Load() == deaf })
	w.recorded(t, "call.finished", func(all []schemas.Event) bool {
		n := 0
		for _, ev := range all {
			if toolOf(ev) == "loud.shout" {
				n++
			}
		}
		return n == deaf
	})
	buskit.Eventually(t, "another is served all the same", served)
}

// Streams end when their access token expires, as when it is revoked, and the next request is refused.
func TestMCPStreamsExpire(t *testing.T) {
	w := newMCPWorld(t, nil)
	w.agent("a")
	expires := time.Now().Add(4 * time.Second)
	issued, err := w.CreateToken(t.Context(), client.NewToken{Agent: id.Agent("agt_a"), ExpiresAt: expires})
	must(t, err)
	w.tokens["short"] = issued.Secret
	_, said, header := w.post(t, "short", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	session := header.Get("Mcp-Session-Id")
	if session == "" {
		t.Fatal(said)
	}
	open := func(method, body string, set http.Header) io.Reader {
		r, err := http.NewRequestWithContext(t.Context(), method, w.endpoints.API+"/mcp", strings.NewReader(body))
		must(t, err)
		r.Header = set
		r.Header.Set("Authorization", "Bearer "+issued.Secret)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", method, resp.Status)
		}
		first := bufio.NewReader(resp.Body)
		if _, err := first.ReadString('\n'); err != nil { // it is open
			t.Fatal(err)
		}
		return first
	}
	streams := map[string]io.Reader{
		sessions: open(http.MethodGet, "", http.Header{"Mcp-Session-Id": {session}, "Mcp-Protocol-Version": {sessions}}),
		without: open(http.MethodPost, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{%s,"notifications":{"toolsListChanged":true}}}`, modernMeta),
			http.Header{"Mcp-Protocol-Version": {without}, "Mcp-Method": {"subscriptions/listen"}}),
	}
	for era, stream := range streams {
		_, _ = io.Copy(io.Discard, stream) // to its end, however that comes
		if now := time.Now(); now.Before(expires) {
			t.Errorf("%s: it ended %s before its token", era, expires.Sub(now))
		}
	}
	if status, said, _ := w.post(t, "short", sessions, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", session) }); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, said)
	}
}
