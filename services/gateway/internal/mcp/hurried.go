package mcp

import (
	"net/http"
	"time"
)

// maxStall is how long a client may leave what it is written unread. One that reads nothing would hold its call's place, and
// whoever ends its session, for as long as it likes.
const maxStall = 30 * time.Second

// stalling is an answer whose every write has to be taken in time.
type stalling struct {
	http.ResponseWriter
	at *http.ResponseController
}

// hurried bounds each write of an answer. unhurried lets the connection's next answer begin anew.
func hurried(w http.ResponseWriter) (_ http.ResponseWriter, unhurried func()) {
	s := &stalling{w, http.NewResponseController(w)}
	return s, func() { _ = s.at.SetWriteDeadline(time.Time{}) } // a connection that is gone needs none
}

func (s *stalling) Write(p []byte) (int, error) {
	_ = s.at.SetWriteDeadline(time.Now().Add(maxStall)) // where a connection has none, the write is as it was
	return s.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController flushes by.
func (s *stalling) FlushError() error {
	_ = s.at.SetWriteDeadline(time.Now().Add(maxStall)) // the same
	return s.at.Flush()
}

// Flush implements http.Flusher.
func (s *stalling) Flush() { _ = s.FlushError() } // the next write says what is wrong

// Unwrap is for http.ResponseController.
func (s *stalling) Unwrap() http.ResponseWriter { return s.ResponseWriter }
