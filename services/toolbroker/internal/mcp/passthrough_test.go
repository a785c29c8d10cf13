package mcp_test

//lint:file-ignore SA1019 logging is to leave the protocol in 2027; until then it is tested

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
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/services/toolbroker/internal/mcp"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// behind serves a real server, in one era of the protocol.
func behind(t *testing.T, server *sdk.Server, opts *sdk.StreamableHTTPOptions) *mcp.Provider {
	t.Helper()
	at := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, opts))
	t.Cleanup(at.Close)
	return provider(t, at.URL)
}

var eras = map[string]*sdk.StreamableHTTPOptions{"2025-11-25": nil, "2025-11-25 in JSON": {JSONResponse: true}, "2026-07-28": {Stateless: true}}

// Every sort of content comes through as the server wrote it, with what it says about it.
func TestContentPassesThrough(t *testing.T) {
	size := int64(9007199254740993)
	about := &sdk.Annotations{Audience: []sdk.Role{"user"}, Priority: 0.5, LastModified: "2026-11-30T12:00:00Z"}
	meta := sdk.Meta{"example.com/n": "v", "nested": map[string]any{"a": []any{"x"}}}
	kinds := map[string]sdk.Content{
		"text":           &sdk.TextContent{Text: "a <b> & \u2028 c", Meta: meta, Annotations: about},
		"empty text":     &sdk.TextContent{},
		"image":          &sdk.ImageContent{Data: []byte{0, 1, 2, 255}, MIMEType: "image/png", Meta: meta, Annotations: about},
		"audio":          &sdk.AudioContent{Data: []byte("RIFF"), MIMEType: "audio/wav", Meta: meta, Annotations: about},
		"resource link":  &sdk.ResourceLink{URI: "file:///a", Name: "a", Title: "A", Description: "d", MIMEType: "text/plain", Size: &size, Meta: meta, Annotations: about},
		"embedded text":  &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///a", MIMEType: "text/plain", Text: "hello", Meta: meta}, Meta: meta, Annotations: about},
		"embedded bytes": &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///b", MIMEType: "application/octet-stream", Blob: []byte{0, 255}}, Annotations: about},
	}
	for era, opts := range eras {
		t.Run(era, func(t *testing.T) {
			server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
			server.AddTool(&sdk.Tool{Name: "give", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				var in struct{ Kind string }
				if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
					return nil, err
				}
				return &sdk.CallToolResult{Meta: meta, Content: []sdk.Content{kinds[in.Kind]}, StructuredContent: json.RawMessage(`{"id":9007199254740993,"small":1e-7,"list":[null,true]}`)}, nil
			})
			p := behind(t, server, opts)
			for kind, content := range kinds {
				t.Run("gridctl/gridctl#848 "+kind, func(t *testing.T) {
					got, err := call(t, p, "give", fmt.Sprintf(`{"kind":%q}`, kind))
					if err != nil {
						t.Fatal(err)
					}
					var parts struct {
						Content    []json.RawMessage
						Structured json.RawMessage `json:"structuredContent"`
						Meta       map[string]any  `json:"_meta"`
					}
					if err := json.Unmarshal(got.Content, &parts); err != nil || len(parts.Content) != 1 {
						t.Fatalf("%s, %v", got.Content, err)
					}
					want, err := content.MarshalJSON()
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(parts.Content[0], want) {
						t.Errorf("came through as\n%s\nwas sent as\n%s", parts.Content[0], want)
					}
					if string(parts.Structured) != `{"id":9007199254740993,"small":1e-7,"list":[null,true]}` || parts.Meta["example.com/n"] != "v" {
						t.Errorf("%s", got.Content)
					}
				})
			}
		})
	}
}

// What this program's SDK does not know yet passes through too, and what it cannot read is an error as before.
func TestUnknownFieldsPassThrough(t *testing.T) {
	result := `{"content":[{"type":"text","text":"x","future":{"deep":12345678901234567890}}],"structuredContent":[1.10,"\u00e9"],"_meta":{"k":0.1000},"isError":true}`
	p, _ := broken(t, `{"tools":[]}`, func(w http.ResponseWriter, r *http.Request) {
		id, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		// In two lines of data, with a comment and another call's answer between.
		fmt.Fprintf(w, ": hello\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\r\ndata: \"result\":%s}\r\n\r\n", id, result)
	})
	got, err := call(t, p, "pay", `{}`)
	if err != nil || !got.ToolError {
		t.Fatalf("%s, %v", got.Content, err)
	}
	for _, want := range []string{`"future":{"deep":12345678901234567890}`, `"structuredContent":[1.10,"\u00e9"]`, `"_meta":{"k":0.1000}`} {
		if !strings.Contains(string(got.Content), want) {
			t.Errorf("%s has no %s", got.Content, want)
		}
	}
	// One that is too large to read along is what the SDK makes of it.
	p, _ = broken(t, `{"tools":[]}`, func(w http.ResponseWriter, r *http.Request) {
		id, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, id, strings.Repeat("x", 5<<20))
	})
	if got, err := call(t, p, "pay", `{}`); err != nil || len(got.Content) < 5<<20 {
		t.Errorf("%d bytes, %v", len(got.Content), err)
	}
}

// Each call hears its own progress and log lines, in order, and none of another's.
func TestNews(t *testing.T) {
	for era, opts := range eras {
		if opts != nil && opts.JSONResponse {
			continue // there is no stream to say anything on
		}
		t.Run("IBM/mcp-context-forge#4302 "+era, func(t *testing.T) {
			server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, &sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}}})
			sdk.AddTool(server, &sdk.Tool{Name: "work"}, func(ctx context.Context, r *sdk.CallToolRequest, in map[string]any) (*sdk.CallToolResult, any, error) {
				who := fmt.Sprint(in["who"])
				for i := range 3 {
					if token := r.Params.GetProgressToken(); token != nil {
						if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1), Total: 3, Message: who}); err != nil {
							return nil, nil, err
						}
					}
					if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "warning", Data: who}); err != nil {
						return nil, nil, err
					}
				}
				return &sdk.CallToolResult{}, nil, nil
			})
			p := behind(t, server, opts)
			var calls sync.WaitGroup
			for i := range 8 {
				calls.Go(func() {
					who := fmt.Sprint("caller ", i)
					var mu sync.Mutex
					var got []string
					_, err := p.Call(t.Context(), upstream.Call{Call: "call_same", Tool: "work", Args: json.RawMessage(fmt.Sprintf(`{"who":%q}`, who)), News: func(n upstream.News) {
						mu.Lock()
						defer mu.Unlock()
						got = append(got, fmt.Sprint(n.Progress, "/", n.Total, n.Level, " ", n.Message))
					}})
					if err != nil {
						t.Error(err)
					}
					var want []string
					for i := range 3 {
						want = append(want, fmt.Sprint(i+1, "/3 ", who), "0/0warning "+who)
					}
					mu.Lock()
					defer mu.Unlock()
					if !slices.Equal(got, want) {
						t.Errorf("%s heard %q", who, got)
					}
				})
			}
			calls.Wait()
		})
	}
}

// A call that is given up on is cancelled at the server: by notifications/cancelled, and in the protocol of 2026-07-28 by
// the end of its stream.
func TestCancellationReachesTheServer(t *testing.T) {
	for era, opts := range map[string]*sdk.StreamableHTTPOptions{"2025-11-25": nil, "2026-07-28": {Stateless: true, PropagateRequestCancellation: true}} {
		t.Run(era, func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan error, 1)
			server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
			sdk.AddTool(server, &sdk.Tool{Name: "work"}, func(ctx context.Context, _ *sdk.CallToolRequest, _ map[string]any) (*sdk.CallToolResult, any, error) {
				close(began)
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, nil, ctx.Err()
			})
			p := behind(t, server, opts)
			ctx, cancel := context.WithCancel(t.Context())
			var calling sync.WaitGroup
			calling.Go(func() {
				if _, err := p.Call(ctx, upstream.Call{Call: "call_1", Tool: "work", Args: json.RawMessage(`{}`)}); err == nil || !upstream.Ambiguous(err) {
					t.Errorf("%v", err)
				}
			})
			<-began
			cancel()
			calling.Wait()
			if err := <-ended; err == nil {
				t.Error("the tool was not cancelled")
			}
		})
	}
}
