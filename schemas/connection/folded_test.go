package connection_test

import (
	"testing"

	"github.com/execwarden/execwarden/schemas/connection"
)

func TestParseOperationCall(t *testing.T) {
	for args, want := range map[string]string{
		`{"tool":"remove","arguments":{"id":"1"}}`: `remove {"id":"1"}`,
		`{"tool":"remove"}`:                        `remove {}`,
		`{"tool":"nosuch","arguments": {} }`:       `nosuch {}`,
	} {
		c, ok := connection.ParseOperationCall([]byte(args))
		if got := c.Tool + " " + string(c.Arguments); !ok || got != want {
			t.Errorf("%s: %s, %v", args, got, ok)
		}
	}
	for _, bad := range []string{``, `null`, `[]`, `{}`, `{"tool":1}`, `{"tool":""}`, `{"tool":"x","arguments":[]}`, `{"tool":"x","arguments":"{}"}`, `{"tool":"x","arguments":null}`,
		`{"tool":"x","y":1}`, `{"tool":"call_operation","arguments":{}}`, `{"tool":"search_operations"}`, `{"tool":"x"}{"tool":"y"}`} {
		if c, ok := connection.ParseOperationCall([]byte(bad)); ok {
			t.Errorf("%s is read as %+v", bad, c)
		}
	}
}
