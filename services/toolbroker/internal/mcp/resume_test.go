package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// A call's stream that breaks off, of a server that numbers its events, is taken up where it was. A server that does not know of it any
// more has said nothing of the call: it may have had its effect.
func TestStreamOfACallThatBreaksOff(t *testing.T) {
	for name, gone := range map[string]int{"taken up": 0, "404": 404, "405": 405, "503": 503} {
		t.Run(name, func(t *testing.T) {
			var id json.RawMessage
			var called, resumed atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				stream := func(text string) {
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprint(w, text)
				}
				if r.Method == http.MethodGet {
					resumed.Add(1)
					if r.Header.Get("Last-Event-ID") != "e1" {
						t.Errorf("it is taken up at %q", r.Header.Get("Last-Event-ID"))
					}
					if gone != 0 {
						w.WriteHeader(gone)
						return
					}
					stream(fmt.Sprintf("id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"paid\"}]}}\n\n", id))
					return
				}
				var m struct {
					ID     json.RawMessage `json:"id"`
					Method string          `json:"method"`
				}
				_ = json.NewDecoder(r.Body).Decode(&m) // a DELETE has none
				switch m.Method {
				case "initialize":
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("Mcp-Session-Id", "s1")
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`, m.ID)
				case "tools/call":
					called.Add(1)
					id = m.ID
					stream("id: e1\nretry: 10\ndata: \n\n")
				case "server/discover":
					w.WriteHeader(http.StatusNotFound)
				default:
					w.WriteHeader(http.StatusAccepted)
				}
			}))
			t.Cleanup(server.Close)
			p := provider(t, server.URL)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got, err := p.Call(ctx, upstream.Call{Call: "call_1", Tool: "pay", Args: json.RawMessage(`{}`), Effect: "e"})
			if called.Load() != 1 || resumed.Load() == 0 {
				t.Errorf("called %d times, taken up %d times", called.Load(), resumed.Load())
			}
			if gone == 0 && (err != nil || string(got.Content) != `{"content":[{"type":"text","text":"paid"}]}`) {
				t.Errorf("%s, %v", got.Content, err)
			}
			if gone != 0 && !upstream.Ambiguous(err) {
				t.Errorf("%s, %v", got.Content, err)
			}
		})
	}
}
