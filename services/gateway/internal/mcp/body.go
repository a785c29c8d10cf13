package mcp

import (
	"bytes"
	"io"
	"net/http"
)

// message is a request's body that was read already, and can be looked at.
type message struct {
	*bytes.Reader
	raw []byte
}

// Close implements io.Closer.
func (message) Close() error { return nil }

func bodyOf(raw []byte) io.ReadCloser { return message{bytes.NewReader(raw), raw} }

// peek gives the whole body of a request, whatever was read of it.
func peek(r *http.Request) ([]byte, bool) {
	m, ok := r.Body.(message)
	return m.raw, ok
}
