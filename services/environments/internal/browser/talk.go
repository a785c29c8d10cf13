package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/execwarden/execwarden/libs/problem"
)

// maxMessage bounds what the browser says at once, in bytes; what says more is ended.
const maxMessage = 16 << 20

// message is one of the protocol (chromedevtools.github.io/devtools-protocol): JSON, ended by a zero byte.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// talk asks a browser, and hears what it says.
type talk struct {
	writing sync.Mutex
	to      io.Writer

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	over    chan struct{} // closed when the browser says nothing more
}

func newTalk(to io.Writer) *talk {
	return &talk{to: to, waiting: map[int]chan message{}, over: make(chan struct{})}
}

// hear hands events on until the browser has ended, or says too much. on must not wait.
func (t *talk) hear(from io.Reader, on func(session, method string, params json.RawMessage)) error {
	defer close(t.over)
	in := bufio.NewReaderSize(from, 64<<10)
	var raw []byte
	for {
		part, err := in.ReadSlice(0)
		raw = append(raw, part...)
		switch {
		case len(raw) > maxMessage:
			return problem.New(problem.TooLarge, "the browser said more than %d bytes at once", maxMessage)
		case err == bufio.ErrBufferFull:
			continue
		case err != nil:
			return err
		}
		var m message
		if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
			return err
		}
		raw = raw[:0]
		if m.ID == 0 {
			on(m.Session, m.Method, m.Params)
			continue
		}
		t.mu.Lock()
		waits := t.waiting[m.ID]
		delete(t.waiting, m.ID)
		t.mu.Unlock()
		if waits != nil {
			waits <- m
		}
	}
}

// ask asks a session, or the browser itself, and reads the answer into out. Problems: unavailable when there is none.
func (t *talk) ask(ctx context.Context, session, method string, params, out any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.next++
	number, answer := t.next, make(chan message, 1)
	t.waiting[number] = answer
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.waiting, number)
		t.mu.Unlock()
	}()
	raw, err = json.Marshal(message{ID: number, Session: session, Method: method, Params: raw})
	if err != nil {
		return err
	}
	t.writing.Lock()
	_, err = t.to.Write(append(raw, 0))
	t.writing.Unlock()
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the browser has ended")
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return problem.New(problem.Invalid, "the browser says: %.300s", m.Error.Message)
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(m.Result, out)
	case <-t.over:
		return problem.New(problem.Unavailable, "the browser has ended")
	case <-ctx.Done():
		return problem.Wrap(ctx.Err(), problem.Timeout, "the page does not answer; open it again, or another")
	}
}
