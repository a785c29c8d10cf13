package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
)

// Program is an MCP server that runs beside the broker. Closing it ends it.
type Program interface {
	io.ReadWriteCloser
	Ended() bool
}

// NewProgram makes a provider of a program that start starts: at first use, and anew after it ended. changed is called when
// it says that its tools changed, and must not block.
func NewProgram(start func(context.Context) (Program, error), changed func()) *Provider {
	p := newProvider()
	news := make(chan struct{}, 1)
	p.changed = func() {
		select {
		case news <- struct{}{}:
		default: // it is told anyway
		}
	}
	p.running.Go(func() {
		for {
			select {
			case <-p.ctx.Done():
				return
			case <-news:
				changed()
			}
			select { // one that says it again and again is listed now and then
			case <-p.ctx.Done():
				return
			case <-time.After(restAfterNews):
			}
		}
	})
	p.dial = func(ctx context.Context) (mcp.Transport, *lines, error) {
		running, err := start(ctx)
		if err != nil {
			return nil, nil, err
		}
		l := &lines{program: running, byToken: map[string]*exchange{}, byID: map[string]*exchange{}}
		return &mcp.IOTransport{Reader: l, Writer: l, MaxLineLength: maxMessage}, l, nil
	}
	return p
}

// lines is what is said to a program and what it says, a message a line, read along for the calls that wait.
type lines struct {
	program Program
	next    atomic.Int64 // token
	partial []byte
	over    bool

	mu      sync.Mutex
	byToken map[string]*exchange
	byID    map[string]*exchange
}

// expect reads along for one call, until done. The token is the call's on this wire: two attempts at a call differ.
func (l *lines) expect(ctx context.Context, x *exchange, call string) (token string, done func()) {
	token = call + "/" + strconv.FormatInt(l.next.Add(1), 10)
	x.over = ctx.Err
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byToken[token] = x
	return token, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.byToken, token)
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(l.byID, x.id)
	}
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Meta struct {
				Token string `json:"progressToken"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(p, &m) == nil && m.ID != nil && m.Method != "" {
		l.mu.Lock()
		if x := l.byToken[m.Params.Meta.Token]; x != nil && x.method == m.Method {
			if err := x.over(); err != nil {
				l.mu.Unlock()
				return 0, err // it waited here for others to be written, and must not begin now
			}
			x.sent(p)
			l.byID[string(m.ID)] = x
		}
		l.mu.Unlock()
	}
	return l.program.Write(p)
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	n, err := l.program.Read(p)
	rest := p[:n]
	for len(rest) > 0 {
		i := bytes.IndexByte(rest, '\n')
		end := i
		if i < 0 {
			end = len(rest)
		}
		if l.over = l.over || len(l.partial)+end > maxMessage; !l.over {
			l.partial = append(l.partial, rest[:end]...)
		}
		if i < 0 {
			break
		}
		if !l.over {
			l.got(l.partial)
		}
		l.partial, l.over = l.partial[:0], false
		rest = rest[i+1:]
	}
	return n, err
}

// got gives a message to the call that it is of. A log line does not say that: it is of the one call that runs, or nobody's.
func (l *lines) got(raw []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Token string `json:"progressToken"`
		} `json:"params"`
	}
	if json.Unmarshal(raw, &m) != nil {
		return // the SDK says so
	}
	l.mu.Lock()
	var x *exchange
	switch {
	case m.Method == "":
		x = l.byID[string(m.ID)]
	case m.Params.Token != "":
		x = l.byToken[m.Params.Token]
	case len(l.byToken) == 1:
		for _, only := range l.byToken {
			x = only
		}
	}
	l.mu.Unlock()
	if x != nil {
		x.got(raw)
	}
}

// Close implements io.Closer.
func (l *lines) Close() error { return l.program.Close() }

// ended is the error of a call to a program that is gone.
func ended(err error) error {
	return problem.Wrap(err, problem.Unavailable, "the program of the connection ended; the next call starts it again")
}
