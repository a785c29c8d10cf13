package model

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/execwarden/execwarden/libs/problem"
)

// events reads server-sent events. Only their data matters: both protocols repeat the event's name inside it.
type events struct {
	lines *bufio.Scanner
	limit Limits
}

func newEvents(r io.Reader, limit Limits) *events {
	lines := bufio.NewScanner(&capped{r, limit.StreamBytes})
	lines.Buffer(nil, limit.LineBytes)
	return &events{lines, limit}
}

// next returns the data of the next event that has any. An event that the end of the stream cuts off does not count,
// as the specification has it.
func (e *events) next() ([]byte, error) {
	var data []byte
	has := false
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			if has {
				return data, nil
			}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) != "data" {
			continue
		}
		if has {
			data = append(data, '\n')
		}
		if len(data)+len(value) > e.limit.LineBytes {
			return nil, final(problem.TooLarge, "the model provider sent an event over %d bytes", e.limit.LineBytes)
		}
		data, has = append(data, bytes.TrimPrefix(value, []byte(" "))...), true
	}
	switch err := e.lines.Err(); {
	case err == nil:
		return nil, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return nil, final(problem.TooLarge, "the model provider sent a line over %d bytes", e.limit.LineBytes)
	case errors.Is(err, errStreamTooLong):
		return nil, final(problem.TooLarge, "the model provider sent more than %d bytes", e.limit.StreamBytes)
	default:
		return nil, err
	}
}

var errStreamTooLong = errors.New("the stream is over its limit")

// capped is io.LimitedReader with an error of its own: an EOF at the limit would look like the end of the stream.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errStreamTooLong
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	return n, err
}
