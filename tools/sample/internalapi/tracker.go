package internalapi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tracker holds the tickets, each under the key that it was opened with.
type tracker struct {
	mu    sync.Mutex
	byKey map[string]ticket
}

type ticketDraft struct {
	Title          string `json:"title" jsonschema:"one line"`
	Component      string `json:"component" jsonschema:"the component that it is about"`
	IdempotencyKey string `json:"idempotencyKey" jsonschema:"chosen by the caller; the same key and ticket may be sent again"`
}

type ticket struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Component string `json:"component"`
}

func (t *tracker) create(_ context.Context, _ *mcp.CallToolRequest, d ticketDraft) (*mcp.CallToolResult, ticket, error) {
	switch _, known := owners[d.Component]; {
	case d.IdempotencyKey == "" || d.Title == "":
		return nil, ticket{}, errors.New("a ticket needs a title and an idempotencyKey")
	case !known:
		return nil, ticket{}, fmt.Errorf("no component is called %.100q", d.Component)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, again := t.byKey[d.IdempotencyKey]; again {
		if old.Title != d.Title || old.Component != d.Component {
			return nil, ticket{}, errors.New("this idempotencyKey opened another ticket")
		}
		return nil, old, nil
	}
	opened := ticket{fmt.Sprintf("T-%d", len(t.byKey)+1), d.Title, d.Component}
	t.byKey[d.IdempotencyKey] = opened
	return nil, opened, nil
}

func (t *tracker) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byKey)
}
