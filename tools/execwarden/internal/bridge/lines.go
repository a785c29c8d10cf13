package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/execwarden/execwarden/libs/problem"
)

// Bounds of a message, in bytes: of the client's, which is what the endpoint takes, and of the server's.
const (
	maxLine   = 4 << 20
	maxAnswer = 32 << 20
)

// line reads the next line. One that is too long is read to its end and given up: only its beginning is given.
func line(r *bufio.Reader) (raw []byte, whole bool, err error) {
	whole = true
	for {
		part, err := r.ReadSlice('\n')
		if len(raw)+len(part) > maxLine {
			whole = false
			part = part[:min(len(part), max(0, 64<<10-len(raw)))]
			raw = raw[:min(len(raw), 64<<10)]
		}
		raw = append(raw, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && len(bytes.TrimSpace(raw)) > 0 {
			err = nil // the last line need not end; the next read says that it was the last
		}
		return bytes.TrimSpace(raw), whole, err
	}
}

// writer writes whole lines.
type writer struct {
	mu  sync.Mutex
	to  io.Writer
	err error // after which nothing is written any more
}

// write writes a message, as it came: a line break in it, which can only be between its parts, would make it two.
func (w *writer) write(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	if bytes.ContainsAny(raw, "\r\n") {
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return problem.Wrap(err, problem.Upstream, "a message of the server is no JSON")
		}
		raw = b.Bytes()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_, w.err = w.to.Write(append(raw[:len(raw):len(raw)], '\n'))
	}
	return w.err
}

func (w *writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
