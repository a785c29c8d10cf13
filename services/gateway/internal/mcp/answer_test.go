package mcp

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// Lists may be asked for without parameters, and whatever goes wrong while a request is answered ends that request alone. There is
// no bus here, so that something does go wrong.
func TestNoRequestEndsTheGateway(t *testing.T) {
	for method, r := range map[string]mcp.Request{
		"tools/list":               &mcp.ListToolsRequest{},
		"resources/list":           &mcp.ListResourcesRequest{},
		"resources/templates/list": &mcp.ListResourceTemplatesRequest{},
		"prompts/list":             &mcp.ListPromptsRequest{},
		"tools/call":               &mcp.CallToolRequest{},
	} {
		result, err := (&Endpoint{Note: slog.New(slog.DiscardHandler)}).answer(t.Context(), newSessions().begin(auth.Agent{}, ""), method, r, nil)
		var wire *jsonrpc.Error
		if result != nil || !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInternalError {
			t.Errorf("%s: %v, %v", method, result, err)
		}
	}
	r := &mcp.ListToolsRequest{}
	if fill(r); r.Params == nil {
		t.Error("the parameters of tools/list are nil")
	}
}
