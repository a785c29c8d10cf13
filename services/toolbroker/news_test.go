package toolbroker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
)

// What a call says while it runs is heard on its subject, counted; a flood is cut, which the count shows.
func TestNewsOfACall(t *testing.T) {
	h := start(t)
	server := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
	const flood = 300
	mcp.AddTool(server, &mcp.Tool{Name: "do", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(ctx context.Context, r *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
		for i := range flood {
			err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Message: strings.Repeat("é", 5000)})
			if err != nil {
				return nil, nil, err
			}
		}
		return &mcp.CallToolResult{}, nil, nil
	})
	h.connectMCP("tickets", server)
	heard, err := h.Conn(t, string(schemas.Gateway)).NC.SubscribeSync(bus.LiveSubject("tnt_a.call_1.up"))
	if err != nil {
		t.Fatal(err)
	}
	h.request("call_1", "tickets.do", `{}`, nil)
	await[call.Finished](h, "call_1")
	last, n := 0, 0
	for {
		m, err := heard.NextMsg(200 * time.Millisecond)
		if err != nil {
			break
		}
		var said call.News
		if err := json.Unmarshal(m.Data, &said); err != nil {
			t.Fatal(err)
		}
		if n++; said.N <= last || said.Call != "call_1" || said.Run != run1 || said.Tool != "tickets.do" || said.Progress != float64(said.N-1) || len(said.Message) > 2048 || said.Message == "" {
			t.Errorf("%d after %d: %+v", said.N, last, said)
		}
		last = said.N
	}
	if n == 0 || n >= flood {
		t.Errorf("%d of %d are passed on", n, flood)
	}
}
