package mcp

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
)

// announce has the SDK say that the lists changed: it does when what it knows of changes.
func announce(server *mcp.Server) {
	server.AddTool(&mcp.Tool{Name: placeholder, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errPlaceholder
	})
	server.AddPrompt(&mcp.Prompt{Name: placeholder}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return nil, errPlaceholder
	})
	server.AddResource(&mcp.Resource{Name: placeholder, URI: placeholder + ":/"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return nil, errPlaceholder
	})
	server.RemoveTools(placeholder)
	server.RemovePrompts(placeholder)
	server.RemoveResources(placeholder + ":/")
}

// placeholder is never listed or called.
const placeholder = "placeholder"

var errPlaceholder = problem.New(problem.NotFound, "there is no such thing")
