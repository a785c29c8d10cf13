package toolbroker_test

import (
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
)

// A connection whose server does not answer is asked for as long as it is defined so, and not for ever after.
func TestDeadServerIsLetGo(t *testing.T) {
	h := start(t)
	outstanding := func() int {
		c, err := h.Boot.JS.Consumer(t.Context(), "EW_CONTROL", "toolbroker_connection")
		if err != nil {
			t.Fatal(err)
		}
		info, err := c.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.NumAckPending + int(info.NumPending)
	}
	dead := connection.Defined{Connection: "con_dead", Type: connection.MCP, URL: "http://127.0.0.1:1/mcp", Private: []string{"127.0.0.1:1"}}
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: dead}); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "it is asked", func() bool { return outstanding() == 1 })
	dead.Removed = true
	if err := h.ask("connection_define", servicekit.Owner(), ask.DefineConnection{Connection: dead}); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "nothing is outstanding", func() bool { return outstanding() == 0 })
}
