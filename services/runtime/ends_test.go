package runtime_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/run"
)

// The scripts of a run have one worker, one after the other, until the run ends.
func TestWorkerIsKeptForItsRun(t *testing.T) {
	h := start(t, false)
	is := func(line string) func() bool { return func() bool { return slices.Contains(h.measured(), line) } }
	for _, end := range []schemas.Event{run.Completed{Run: run1}, run.Failed{Run: run1}, run.Cancelled{Run: run1}} {
		c := id.Call("call_" + strings.TrimPrefix(end.Kind(), "run."))
		h.admit(c, source(`globalThis.left = 1; return 1`))
		h.outcome(c)
		buskit.Eventually(t, "the worker is parked", is(`execwarden_scripts{state="parked"} 1`))
		h.Say(schemas.Agentloop, eventlog.Draft{Key: string(run1), Event: end})
		buskit.Eventually(t, "the worker ends at "+end.Kind(), is(`execwarden_scripts{state="parked"} 0`))
	}
}
