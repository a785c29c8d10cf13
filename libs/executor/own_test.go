package executor_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// What this process admitted itself is acted on as it was made, once, and only where nobody else can have acted on it. Here the
// permit of what is stored is no permit, so that whoever reads it back refuses.
func TestOwnAdmission(t *testing.T) {
	h := start(t)
	now := time.Now()
	for name, c := range map[string]struct {
		made  func(*executor.Made)
		heard func(*bus.Heard)
		own   bool
	}{
		"as it was made":           {own: true},
		"brought before":           {heard: func(b *bus.Heard) { b.Deliveries = 2 }},
		"at another sequence":      {made: func(m *executor.Made) { m.Seq++ }},
		"of another tenant":        {made: func(m *executor.Made) { m.Tenant = "tnt_b" }},
		"of another call":          {made: func(m *executor.Made) { m.Admitted.Call = "call_other" }},
		"asked for long ago":       {made: func(m *executor.Made) { m.Asked = now.Add(-time.Hour) }},
		"more than is kept":        {made: func(m *executor.Made) { m.Requested.Body.Args = bytes.Repeat([]byte(" "), 17<<10) }},
		"with a long answer in it": {made: func(m *executor.Made) { m.Requested.Body.Input = bytes.Repeat([]byte(" "), 17<<10) }},
		"of a long-winded client": {made: func(m *executor.Made) {
			m.Requested.Client = &call.Client{Capabilities: bytes.Repeat([]byte(" "), 17<<10)}
		}},
	} {
		heard := h.admit(id.Derive[id.Call](name), func(s *story) { s.permit = func(string) string { return "none" } })
		admitted := heard.Event.(call.Admitted)
		m := executor.Made{Tenant: heard.At.Tenant, Asked: time.Now(), Admitted: admitted, Seq: heard.Seq,
			Requested: call.Requested{Call: admitted.Call, Run: "run_1", Body: call.Args{Args: json.RawMessage(`{"own":1}`)}}}
		if c.made != nil {
			c.made(&m)
		}
		if c.heard != nil {
			c.heard(&heard)
		}
		h.gate.Made(m)
		w, err := h.gate.Accept(t.Context(), heard)
		if own := err == nil && string(w.Requested.Body.Args) == `{"own":1}`; own != c.own {
			t.Errorf("%s: acted on as its own %v, want %v: %+v, %v", name, own, c.own, w, err)
		}
		if _, err := h.gate.Accept(t.Context(), heard); err == nil {
			t.Errorf("%s: heard again, it is acted on without being read", name)
		}
	}
	// Those that were never heard here, since another instance was, make room.
	first := h.admit("call_first", func(s *story) { s.permit = func(string) string { return "none" } })
	for i := range 1025 {
		m := executor.Made{Tenant: first.At.Tenant, Asked: time.Now(), Admitted: first.Event.(call.Admitted), Seq: first.Seq}
		if i > 0 {
			m.Admitted.Call = id.Call("call_" + strconv.Itoa(i))
		}
		h.gate.Made(m)
	}
	if _, err := h.gate.Accept(t.Context(), first); err == nil {
		t.Error("more than 1,024 are kept")
	}
}
