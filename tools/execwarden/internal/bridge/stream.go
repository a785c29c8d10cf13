package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// place is where a stream of events ended, and how long the server wants to be left alone.
type place struct {
	after string
	pause time.Duration
}

// events passes on a stream's messages as they come, until the answer to a message, or the stream's end.
func (b *Bridge) events(body io.Reader, m *message) (answered bool, at place, err error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), maxAnswer)
	var data bytes.Buffer
	kind := ""
	for lines.Scan() {
		text := lines.Bytes()
		if len(text) == 0 { // an event is whole
			raw := bytes.TrimSpace(data.Bytes())
			if len(raw) > 0 && (kind == "" || kind == "message") {
				if !json.Valid(raw) {
					return false, at, problem.New(problem.Upstream, "an event of the server is no JSON")
				}
				if m.request() && answerOf(raw) == m.id {
					return true, at, b.pass(raw, m)
				}
				if err := b.out.write(raw); err != nil {
					return false, at, err
				}
			}
			data.Reset()
			kind = ""
			continue
		}
		name, value, _ := bytes.Cut(text, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if data.Len()+len(value) > maxAnswer {
				return false, at, problem.New(problem.TooLarge, "an event of the server is over %d bytes", maxAnswer)
			}
			if data.Len() > 0 {
				data.WriteByte('\n')
			}
			data.Write(value)
		case "event":
			kind = string(value)
		case "id":
			at.after = string(value)
		case "retry":
			if ms, err := strconv.Atoi(string(value)); err == nil && ms >= 0 {
				at.pause = min(time.Duration(ms)*time.Millisecond, time.Minute)
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return false, at, problem.New(problem.TooLarge, "an event of the server is over %d bytes", maxAnswer)
	}
	return false, at, nil // however it ended: what is missing can be asked for
}

// resume goes on with a request whose stream ended before its answer, where the server gave a place to go on from.
func (b *Bridge) resume(ctx context.Context, m *message, at place) error {
	pause := b.cfg.Pause
	for range b.cfg.Tries {
		if at.after == "" || m.modern() {
			break // the protocol has no way to go on
		}
		select {
		case <-time.After(max(pause, at.pause)):
			pause = min(2*pause, 2*time.Second)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		answered, next, err := b.follow(ctx, m, at)
		if answered || err != nil {
			return err
		}
		if next.after != at.after {
			pause = b.cfg.Pause // it goes on
		}
		at = next
	}
	return problem.New(problem.Unknown, "the connection was lost before the answer came; the ledger knows what became of it")
}

// follow opens a stream of the session, at a place. A server that is not there now leaves the place as it is.
func (b *Bridge) follow(ctx context.Context, m *message, at place) (answered bool, next place, err error) {
	r, err := b.request(ctx, http.MethodGet, http.NoBody)
	if err != nil {
		return false, at, err
	}
	b.session.head(r.Header, &message{})
	r.Header.Set("Accept", "text/event-stream")
	if at.after != "" {
		r.Header.Set("Last-Event-ID", at.after)
	}
	resp, err := b.http.Do(r)
	if err != nil {
		return false, at, context.Cause(ctx)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed || resp.StatusCode == http.StatusUnauthorized:
		return false, at, problem.New(problem.Unknown, "the connection was lost before the answer came, and the server does not go on with it; the ledger knows what became of it")
	case resp.StatusCode != http.StatusOK:
		return false, at, nil
	}
	answered, next, err = b.events(resp.Body, m)
	if next.after == "" {
		next.after = at.after
	}
	return answered, next, err
}
