package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// maxFrame is the largest message of an event stream that is read, in bytes. An event is at most 256 KiB on the bus;
// as JSON within JSON, or in base64, it stays well under this.
const maxFrame = 4 << 20

// frame is one message of an event stream (WHATWG HTML, section 9.2).
type frame struct {
	name string // "" is an ordinary message
	data []byte
	id   string // where to resume after it; "" when it says nothing new
}

// frames reads an event stream.
type frames struct{ in *bufio.Reader }

func newFrames(r io.Reader) *frames { return &frames{bufio.NewReaderSize(r, 64<<10)} }

// next gives the next message. One without data only moves the place, or shows that the server lives. The end of the
// stream in the middle of a message drops that message: it is sent again after the place before it.
func (f *frames) next() (frame, error) {
	var out frame
	size, data := 0, false
	for {
		line, err := f.line(maxFrame - size)
		if err != nil {
			return frame{}, err
		}
		size += len(line)
		if len(line) == 0 {
			return out, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			out.name = string(value)
		case "data":
			if data {
				out.data = append(out.data, '\n')
			}
			out.data, data = append(out.data, value...), true
		case "id":
			if !strings.ContainsRune(string(value), 0) {
				out.id = string(value)
			}
		}
	}
}

// line reads a line of at most limit bytes, without its end.
func (f *frames) line(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := f.in.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, problem.New(problem.TooLarge, "a message of the event stream is over %d bytes", maxFrame)
		}
		line = append(line, part...)
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}
