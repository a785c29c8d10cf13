package scriptmodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// stream writes server-sent events, up to the cut of a fault.
type stream struct {
	w    http.ResponseWriter
	cut  *Fault
	sent int
}

func newStream(w http.ResponseWriter, cut *Fault) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	return &stream{w: w, cut: cut}
}

// send writes one event; name may be empty.
func (s *stream) send(name string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	s.sendRaw(name, string(raw))
}

func (s *stream) sendRaw(name, data string) {
	if s.cut != nil && s.sent >= s.cut.CutAfter {
		if s.cut.Abort {
			panic(http.ErrAbortHandler)
		}
		return
	}
	s.sent++
	if name != "" {
		fmt.Fprintf(s.w, "event: %s\n", name)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", data)
	_ = http.NewResponseController(s.w).Flush() // the client is gone if this fails
}
