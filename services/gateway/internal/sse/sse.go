// Package sse writes server-sent events.
package sse

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// writeWithin is how long a reader may take to accept what is sent. Whoever is slower is cut off and resumes by its
// cursor, so a stuck reader holds nothing but its connection.
const writeWithin = 20 * time.Second

// Writer is one stream to one reader.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Start begins a stream.
func Start(w http.ResponseWriter) (*Writer, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a buffering proxy would turn live into late
	w.WriteHeader(http.StatusOK)
	s := &Writer{w: w, control: http.NewResponseController(w)}
	return s, s.send([]byte(": stream\n\n"))
}

// Event sends data; id is where a reader resumes, event its name. Either may be empty.
func (s *Writer) Event(id, event string, data []byte) error {
	var b bytes.Buffer
	if event != "" {
		fmt.Fprintf(&b, "event: %s\n", event)
	}
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	// A carriage return ends a line too, so none may be left in the data.
	for line := range strings.SplitSeq(strings.ReplaceAll(string(data), "\r", ""), "\n") {
		fmt.Fprintf(&b, "data: %s\n", line)
	}
	b.WriteByte('\n')
	return s.send(b.Bytes())
}

// Beat shows that the stream lives, and moves the reader's place without an event.
func (s *Writer) Beat(id string) error {
	if id == "" { // an empty id would make the reader forget its place
		return s.send([]byte(": heartbeat\n\n"))
	}
	return s.send(fmt.Appendf(nil, ": heartbeat\nid: %s\n\n", id))
}

func (s *Writer) send(b []byte) error {
	// Not every writer has deadlines; a test's recorder has none.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeWithin))
	_, err := s.w.Write(b)
	if err == nil {
		err = s.control.Flush()
	}
	if err != nil {
		return problem.Wrap(err, problem.Cancelled, "the reader is gone")
	}
	return nil
}
