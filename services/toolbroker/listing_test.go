package toolbroker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/execwarden/execwarden/schemas/connection"
)

func TestChanges(t *testing.T) {
	at, earlier := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	tool := func(name, description string, since time.Time) connection.Tool {
		return connection.Tool{Name: name, Description: description, Schema: json.RawMessage(`{}`), Effect: connection.Pure, ChangedAt: since}
	}
	none := time.Time{}
	for name, c := range map[string]struct {
		of          connection.Type
		now, before []connection.Tool
		changed     bool
		since       time.Time // of the first tool
	}{
		"first listing":               {connection.MCP, []connection.Tool{tool("a", "x", none)}, nil, true, none},
		"the same":                    {connection.MCP, []connection.Tool{tool("a", "x", none)}, []connection.Tool{tool("a", "x", none)}, false, none},
		"the same, changed before":    {connection.MCP, []connection.Tool{tool("a", "x", none)}, []connection.Tool{tool("a", "x", earlier)}, false, earlier},
		"another description":         {connection.MCP, []connection.Tool{tool("a", "y", none)}, []connection.Tool{tool("a", "x", none)}, true, at},
		"and back":                    {connection.MCP, []connection.Tool{tool("a", "x", none)}, []connection.Tool{tool("a", "y", earlier)}, true, at},
		"a new tool beside it":        {connection.MCP, []connection.Tool{tool("a", "x", none), tool("b", "x", none)}, []connection.Tool{tool("a", "x", none)}, true, none},
		"a tool that went":            {connection.MCP, []connection.Tool{tool("a", "x", none)}, []connection.Tool{tool("a", "x", none), tool("b", "x", none)}, true, none},
		"our own description changed": {connection.GitHub, []connection.Tool{tool("a", "y", none)}, []connection.Tool{tool("a", "x", none)}, true, none},
	} {
		got, changed := changes(c.of, c.now, c.before, at)
		if changed != c.changed || !got[0].ChangedAt.Equal(c.since) {
			t.Errorf("%s: changed %v since %v, want %v since %v", name, changed, got[0].ChangedAt, c.changed, c.since)
		}
	}
}
