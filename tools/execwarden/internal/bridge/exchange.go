package bridge

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/execwarden/execwarden/libs/problem"
)

// exchange sends a request and passes on everything that comes back, up to its answer. sent is called once it is on its way.
// It gives a problem when there is no answer.
func (b *Bridge) exchange(ctx context.Context, m *message, sent func()) error {
	defer sent()
	for again := false; ; again = true {
		resp, written, err := b.post(ctx, m, sent)
		if err != nil {
			return lost(err, written)
		}
		if m.method == "initialize" {
			b.session.began(m, resp.Header.Get("Mcp-Session-Id"))
		}
		answered, at, err := b.answer(resp, m)
		switch {
		case errors.Is(err, errForgotten) && !again && m.method != "initialize":
			// It was not looked at, so it is no second time.
			if err := b.session.again(ctx, b, resp.Request.Header.Get("Mcp-Session-Id")); err != nil {
				return err
			}
			continue
		case err == nil && !answered:
			return b.resume(ctx, m, at)
		}
		return err
	}
}

// deliver sends what has no answer: a notification, or the client's answer to a question of the server's.
func (b *Bridge) deliver(ctx context.Context, m *message) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, written, err := b.post(ctx, m, func() {})
	if err != nil {
		return lost(err, written)
	}
	if _, _, err = b.answer(resp, m); err == nil && m.method == "notifications/initialized" {
		b.session.listen(b)
	}
	if errors.Is(err, errForgotten) {
		return problem.New(problem.NotFound, "the server has forgotten the session; the next request begins a new one")
	}
	return err
}

// lost says what is known of a message whose connection broke: what was never written had no effect.
func lost(err error, written bool) error {
	if written {
		return problem.Wrap(err, problem.Unknown, "the connection was lost before the answer came; the ledger knows what became of it: %v", unwrapped(err))
	}
	return problem.Wrap(err, problem.Unavailable, "the server cannot be reached: %v", unwrapped(err))
}

// unwrapped leaves the URL out of an error, which is said elsewhere.
func unwrapped(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	return err
}

// post sends a message. While there is nobody to take it, it is tried again.
func (b *Bridge) post(ctx context.Context, m *message, sent func()) (_ *http.Response, written bool, err error) {
	pause := b.cfg.Pause
	for try := 1; ; try++ {
		var r *http.Request
		if r, err = b.request(ctx, http.MethodPost, bytes.NewReader(m.raw)); err != nil {
			return nil, false, err
		}
		r.Header.Set("Content-Type", "application/json")
		b.session.head(r.Header, m)
		wrote := atomic.Bool{}
		trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
			wrote.Store(info.Err == nil)
			sent()
		}}
		var resp *http.Response
		resp, err = b.http.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		var op *net.OpError
		if err == nil || ctx.Err() != nil || try >= b.cfg.Tries || !errors.As(err, &op) || op.Op != "dial" {
			return resp, wrote.Load(), err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 2*time.Second)
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

func (b *Bridge) request(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, b.cfg.URL, body)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the endpoint's URL cannot be asked")
	}
	r.Header.Set("Authorization", "Bearer "+b.cfg.Token.Reveal())
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r, nil
}

// stateless are the headers of a message of the protocol without sessions.
func stateless(h http.Header, m *message) {
	h.Set("Mcp-Protocol-Version", m.version)
	if m.method != "" {
		h.Set("Mcp-Method", inHeader(m.method))
	}
	if m.name != "" {
		h.Set("Mcp-Name", inHeader(m.name))
	}
}

// inHeader writes a text into a header: as it is, which is what servers hold against the message, and in the protocol's base64 where
// no header can have it.
func inHeader(text string) string {
	if text == strings.TrimSpace(text) && !strings.ContainsFunc(text, unicode.IsControl) {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

var errForgotten = problem.New(problem.NotFound, "the server has forgotten the session")

// answer passes a response on. It says whether the message's answer was in it, and where its stream ended.
func (b *Bridge) answer(resp *http.Response, m *message) (answered bool, at place, err error) {
	defer resp.Body.Close()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent:
		return !m.request(), at, nil
	case resp.StatusCode == http.StatusOK && kind == "text/event-stream":
		return b.events(resp.Body, m)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return false, at, problem.Wrap(err, problem.Unknown, "the connection was lost before the answer came; the ledger knows what became of it")
	case len(raw) > maxAnswer:
		return false, at, problem.New(problem.TooLarge, "the server's answer is over %d bytes", maxAnswer)
	case m.request() && json.Valid(raw) && answerOf(raw) == m.id:
		return true, at, b.pass(raw, m) // an error too, whatever its status
	case resp.StatusCode == http.StatusNotFound && resp.Request.Header.Get("Mcp-Session-Id") != "":
		return false, at, errForgotten
	case resp.StatusCode/100 == 2:
		if !m.request() {
			return true, at, nil
		}
		return false, at, problem.New(problem.Upstream, "the server's answer is not one to the request; is %s an MCP endpoint?", b.cfg.URL)
	}
	return false, at, problemOf(resp.StatusCode, raw)
}

// pass passes the answer to a message on.
func (b *Bridge) pass(raw []byte, m *message) error {
	if m.method == "initialize" {
		b.session.agreed(raw)
	}
	b.answering(m)
	return b.out.write(raw)
}

// problemOf is what a refusal says: as a problem of the API, as an error of JSON-RPC, or by its status alone.
func problemOf(status int, raw []byte) error {
	if d := problem.ReadHTTP(raw); d != nil && d.Code.Known() {
		return problem.New(d.Code, "%.1000s", d.Message)
	}
	code, known := codes[status]
	if !known {
		code = problem.Upstream
	}
	var said struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(raw, &said) == nil && said.Error.Message != "" {
		return problem.New(code, "%.1000s", said.Error.Message)
	}
	return problem.New(code, "the server answered with status %d", status)
}

// codes are of refusals by something that is not ours, such as a proxy.
var codes = map[int]problem.Code{
	http.StatusBadRequest: problem.Invalid, http.StatusUnauthorized: problem.Unauthenticated, http.StatusForbidden: problem.Denied,
	http.StatusNotFound: problem.NotFound, http.StatusRequestEntityTooLarge: problem.TooLarge, http.StatusTooManyRequests: problem.Busy,
	http.StatusServiceUnavailable: problem.Unavailable, http.StatusBadGateway: problem.Unavailable, http.StatusGatewayTimeout: problem.Unavailable,
}
