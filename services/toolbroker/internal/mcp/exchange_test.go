package mcp

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

type way func(*http.Request) (*http.Response, error)

func (w way) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// What a server says to the news that a call was given up is no answer to the call.
func TestAnswerToTheNewsOfAnEnd(t *testing.T) {
	p := New("http://127.0.0.1:1", &http.Client{Transport: way(func(r *http.Request) (*http.Response, error) {
		raw, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(raw), "tools/call") {
			return nil, context.Canceled
		}
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
	})})
	ctx, watch := upstream.Watched(withExchange(t.Context(), &exchange{method: "tools/call"}))
	say := func(message string) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := p.client.Transport.RoundTrip(r); err == nil {
			resp.Body.Close()
		}
	}
	say(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}`)
	say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	if watch.Refused() {
		t.Error("the call is taken for refused")
	}
}
