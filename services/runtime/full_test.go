package runtime_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/services/runtime"
)

// fill leaves the tenant no place: its one has a script that waits for a call.
func (h *house) fill() call.Requested {
	h.t.Helper()
	h.again(func(c *runtime.Config) { c.Scripts, c.ScriptPatience = 2, time.Second })
	h.admit("call_long", source(`return await tools.tickets.find({i: 1})`))
	return h.nested(1)
}

func (h *house) begun() (of []string) {
	h.t.Helper()
	for _, e := range h.Events(schemas.Activity, "script.started") {
		ev, _ := e.Envelope.Decode()
		of = append(of, string(ev.(script.Started).Call))
	}
	return of
}

// A full pool is an answer that the model sees, and no script that began.
func TestFullPoolIsBusy(t *testing.T) {
	h := start(t, false)
	long := h.fill()
	h.admit("call_js", source(`return await tools.tickets.close({i: 2})`))
	f, _ := servicekit.Await[call.Failed](h.Kit, 1, nil)
	if f.Call != "call_js" || f.Code != "busy" || !strings.Contains(f.Message, "the script was not run; try again") {
		t.Errorf("%+v", f)
	}
	h.finish(long, "1")
	if _, result := h.outcome("call_long"); !strings.Contains(result, `"value":1`) {
		t.Error(result)
	}
	if of := h.begun(); !slices.Equal(of, []string{"call_long"}) {
		t.Errorf("%v are recorded as begun", of)
	}
	if n := len(h.Events(schemas.Activity, "call.requested")); n != 3 {
		t.Errorf("%d calls were requested", n)
	}
}

// A script that ran before has done something already: it waits until there is a place, and the model is not told to do
// it all again. Its waiting leaves no word of an attempt.
func TestFullPoolKeepsWhatHasBegun(t *testing.T) {
	h := start(t, false)
	long := h.fill()
	h.admitAfter(run1, "call_js", source(`return 2`), func() {
		h.Say(schemas.Runtime, eventlog.Draft{Key: string(run1), Run: run1, Event: script.Started{Call: "call_js", Run: run1, Attempt: 1}})
	})
	buskit.Eventually(t, "it found the pool full", func() bool { return slices.Contains(h.measured(), `execwarden_script_stopped_total{reason="busy"} 1`) })
	h.finish(long, "1")
	if _, result := h.outcome("call_js"); !strings.Contains(result, `"value":2`) {
		t.Error(result)
	}
	if of := h.begun(); !slices.Equal(of, []string{"call_long", "call_js", "call_js"}) {
		t.Errorf("%v are recorded as begun", of)
	}
	if n := len(h.Events(schemas.Activity, "call.failed")); n != 0 {
		t.Errorf("%d calls failed", n)
	}
}
