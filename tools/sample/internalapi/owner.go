package internalapi

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type ownerQuery struct {
	Component string `json:"component" jsonschema:"the component's name, such as documentation"`
}

type owner struct {
	Component string `json:"component"`
	Team      string `json:"team"`
	OnCall    string `json:"onCall"`
}

var owners = map[string]owner{
	"api":           {"api", "platform", "Asha Rao"},
	"documentation": {"documentation", "docs", "Mika Lind"},
	"website":       {"website", "web", "Tom Okafor"},
}

func findOwner(_ context.Context, _ *mcp.CallToolRequest, q ownerQuery) (*mcp.CallToolResult, owner, error) {
	found, ok := owners[q.Component]
	if !ok {
		return nil, owner{}, fmt.Errorf("no component is called %.100q", q.Component)
	}
	return nil, found, nil
}
