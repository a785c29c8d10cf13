package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	said "github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// What a server asks in a call may wait for a person for as long as it takes, whoever else comes meanwhile: the session is there still.
func TestQuestionOutlastsIdleness(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "x", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "ask"}, func(ctx context.Context, r *sdk.CallToolRequest, _ map[string]any) (*sdk.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "who are you?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
		if err != nil {
			return nil, nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprint(answer.Content["name"], " in ", r.Session.ID())}}}, nil, nil
	})
	p := behind(t, server, nil)
	asked := 0
	client := &upstream.Client{Client: said.Client{Protocol: "2025-11-25", Capabilities: json.RawMessage(`{"elicitation":{}}`)}, Conversation: "mcp_one",
		Say: func(string, json.RawMessage) {},
		Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			asked++
			p.AnHourLater()
			return json.RawMessage(`{"action":"accept","content":{"name":"ada"}}`), nil
		}}
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
