package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind says what a message is.
type Kind byte

const (
	KindHello    Kind = iota + 1 // worker: the jail is closed and this is what holds
	KindRun                      // parent: the script
	KindCall                     // worker: call a tool
	KindFetch                    // worker: fetch a URL
	KindLog                      // worker: one console line
	KindReply                    // parent: the answer to a request
	KindDone                     // worker: the script's value
	KindFail                     // worker: why there is no value
	KindSearch                   // worker: what may be called
	KindArtifact                 // worker: keep a value, or give or remove one
	KindReady                    // worker: the last script is gone and another may come
)

const (
	// MaxFrame bounds one frame. A longer message is several frames in a row, so that neither side ever allocates
	// for a length that the other merely claims.
	MaxFrame = 1 << 20

	headerSize = 6 // length of what follows (4), kind (1), flags (1)
	flagMore   = 1
)

// ErrProtocol is what every broken rule of the framing wraps.
var ErrProtocol = errors.New("protocol violation")

// Conn carries messages over one end of the socket pair. Send is safe for concurrent use; Receive is for one
// goroutine.
type Conn struct {
	r *bufio.Reader
	w io.Writer

	mu sync.Mutex // one message's frames are never interleaved with another's
}

// NewConn makes a Conn over rw.
func NewConn(rw io.ReadWriter) *Conn {
	return &Conn{r: bufio.NewReaderSize(rw, 64<<10), w: rw}
}

// Pending is how many bytes were read from the other end and not yet taken.
func (c *Conn) Pending() int { return c.r.Buffered() }

// Send writes one message. A message that fits one frame is one write.
func (c *Conn) Send(kind Kind, message any) error {
	var body bytes.Buffer
	body.Write(make([]byte, headerSize))
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // or a value of '<' alone would grow sixfold, beyond its limit
	if err := enc.Encode(message); err != nil {
		return fmt.Errorf("encode message %d: %w", kind, err)
	}
	raw := body.Bytes()

	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n := min(len(raw)-headerSize, MaxFrame-2)
		more := headerSize+n < len(raw)
		binary.BigEndian.PutUint32(raw, uint32(n+2))
		raw[4], raw[5] = byte(kind), 0
		if more {
			raw[5] = flagMore
		}
		if _, err := c.w.Write(raw[:headerSize+n]); err != nil {
			return err
		}
		if !more {
			return nil
		}
		raw = raw[n:] // the next header overwrites what was already sent
	}
}

// Receive reads one message of a kind that limit knows. limit returns the largest size of a kind at this moment, and
// zero for a kind that may not come now.
func (c *Conn) Receive(limit func(Kind) int) (Kind, []byte, error) {
	var (
		header [headerSize]byte
		kind   Kind
		body   []byte
	)
	for first := true; ; first = false {
		if _, err := io.ReadFull(c.r, header[:]); err != nil {
			return 0, nil, err
		}
		size := int64(binary.BigEndian.Uint32(header[:4])) - 2
		flags := header[5]
		switch {
		case size < 0 || size > MaxFrame-2:
			return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, size+2)
		case flags&^flagMore != 0:
			return 0, nil, fmt.Errorf("%w: flags %#x", ErrProtocol, flags)
		case !first && Kind(header[4]) != kind:
			return 0, nil, fmt.Errorf("%w: kind %d inside a message of kind %d", ErrProtocol, header[4], kind)
		case flags&flagMore != 0 && size == 0:
			return 0, nil, fmt.Errorf("%w: an empty part", ErrProtocol)
		}
		kind = Kind(header[4])
		most := limit(kind)
		if most == 0 {
			return 0, nil, fmt.Errorf("%w: kind %d may not come now", ErrProtocol, kind)
		}
		if int64(len(body))+size > int64(most) {
			return 0, nil, fmt.Errorf("%w: a message of kind %d over %d bytes", ErrProtocol, kind, most)
		}
		start := len(body)
		body = append(body, make([]byte, size)...)
		if _, err := io.ReadFull(c.r, body[start:]); err != nil {
			return 0, nil, err
		}
		if flags&flagMore == 0 {
			return kind, body, nil
		}
	}
}

// Decode reads a message's body into v. Unknown fields and anything after the value are refused.
func Decode(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("%w: bytes after the message", ErrProtocol)
	}
	return nil
}
