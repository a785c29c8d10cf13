package toolbroker_test

import (
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
	"github.com/execwarden/execwarden/schemas/volume"
)

// The tools of a machine are shown to whom one is attached for: a run, a session or an agent, and to nobody else.
func TestMachineToolsAreShownWhenAttached(t *testing.T) {
	h := start(t)
	h.grant("grt_machine", "machine.*", grant.Never)
	const session = id.Session("ses_1")
	h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_of", Event: run.Created{Run: "run_of", Session: session}})
	h.Say(schemas.Agentloop, eventlog.Draft{Key: "run_other", Event: run.Created{Run: "run_other", Session: "ses_2"}})
	gateway := h.Conn(t, string(schemas.Gateway))
	shown := func(r id.Run) bool {
		t.Helper()
		seen, err := rpc.Ask[ask.VisibleTools](t.Context(), gateway, schemas.Toolbroker, "tools_visible", servicekit.Owner(), ask.Visibility{Agent: "agt_a", Run: r})
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range seen.Tools {
			if strings.HasPrefix(tool.Name, "machine.") {
				return true
			}
		}
		return false
	}
	v := volume.Defined{Volume: "vol_1", Environment: "env_box", Name: "main"}
	say := func(holder *volume.Holder) {
		t.Helper()
		v.Attached = nil
		if holder != nil {
			v.Epoch++
			v.Attached = &volume.Attachment{Attachment: "att_1", Holder: *holder}
		}
		h.heard(h.Say(schemas.Environments, eventlog.Draft{Key: string(v.Volume), Event: v}))
	}
	for name, c := range map[string]struct {
		holder *volume.Holder
		runs   map[id.Run]bool
	}{
		"nothing":         {nil, map[id.Run]bool{"run_of": false, "run_other": false, "": false}},
		"a run":           {&volume.Holder{Run: "run_of"}, map[id.Run]bool{"run_of": true, "run_other": false, "": false}},
		"a session":       {&volume.Holder{Session: session}, map[id.Run]bool{"run_of": true, "run_other": false, "mcp_1": false, "": false}},
		"the agent":       {&volume.Holder{Agent: "agt_a"}, map[id.Run]bool{"run_of": true, "run_other": true, "mcp_1": true, "": true}},
		"another's agent": {&volume.Holder{Agent: "agt_b"}, map[id.Run]bool{"run_of": false, "": false}},
	} {
		say(c.holder)
		for r, want := range c.runs {
			if got := shown(r); got != want {
				t.Errorf("attached to %s, run %q: shown %v", name, r, got)
			}
		}
	}
}
