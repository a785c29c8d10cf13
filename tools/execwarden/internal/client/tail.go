package client

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
)

// Reader takes what is followed. An error from Event ends the following.
type Reader interface {
	Event(Event, Cursor) error // the cursor is the place right after the event
	Notice(problem.Detail)     // something that the reader should know of; nothing was lost
	Gap(problem.Detail)        // something was left out, and what is known of it
}

// NewsReader is a Reader that also takes what the calls of a run say while they run. It is recorded nowhere.
type NewsReader interface{ News(call.News) }

// Tail gives to every event that the filter lets through, after a place and as they are recorded. A connection that
// is lost is made again and goes on where it was; an event is given once. It gives the place that was reached, and
// returns when ctx ends, the reader fails, or the server refuses for a reason that waiting does not change.
func (c *Client) Tail(ctx context.Context, f Filter, after Cursor, to Reader) (Cursor, error) {
	t := &tail{client: c, filter: f, at: after, to: to}
	for {
		err := t.once(ctx)
		var stop *readerError
		switch {
		case errors.As(err, &stop):
			return t.at, stop.cause
		case ctx.Err() != nil:
			return t.at, ended(ctx)
		case !passing(err) || !t.connected:
			return t.at, err // at the first attempt too: the address may be wrong
		}
		if t.failed == 0 {
			to.Notice(problem.Detail{Code: problem.Unavailable, Message: "the event stream was interrupted; connecting again after " + t.at.String()})
		}
		if !c.reconnect.wait(ctx, t.failed) {
			return t.at, ended(ctx)
		}
		t.failed++
	}
}

// ended is how a following ends that would have gone on.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return problem.Wrap(ctx.Err(), problem.Timeout, "--timeout passed")
	}
	return problem.Wrap(ctx.Err(), problem.Cancelled, "interrupted")
}

// passing says whether trying again can help.
func passing(err error) bool {
	switch problem.CodeOf(err) {
	case problem.Unavailable, problem.AuditUnavailable, problem.Busy, problem.Timeout, problem.Cancelled:
		return true
	}
	return false
}

// readerError is a reader's own failure.
type readerError struct{ cause error }

func (e *readerError) Error() string { return e.cause.Error() }

// tail is a following in progress.
type tail struct {
	client    *Client
	filter    Filter
	at        Cursor
	to        Reader
	connected bool // at least once
	failed    int  // attempts in a row that gave nothing
}

// once follows one connection to its end.
func (t *tail) once(ctx context.Context) error {
	// A connection that died without a word would otherwise look like a quiet one, for ever.
	idle := t.client.reconnect.Idle
	alive, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(idle, cancel)
	defer watchdog.Stop()
	err := t.follow(alive, func() { watchdog.Reset(idle) })
	if alive.Err() != nil && ctx.Err() == nil {
		return problem.Wrap(err, problem.Unavailable, "%s said nothing for %s", t.client.base, idle)
	}
	return err
}

func (t *tail) follow(ctx context.Context, heard func()) error {
	resp, err := t.client.open(ctx, http.MethodGet, "/v1/events/tail", t.filter.query(t.at), nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "text/event-stream" {
		return problem.New(problem.Internal, "%s answers with something else than an event stream; is it an ExecWarden API?", t.client.base)
	}
	if t.connected {
		t.to.Notice(problem.Detail{Code: problem.Pending, Message: "connected again after " + t.at.String() + "; nothing was left out"})
	}
	t.connected = true
	in := newFrames(resp.Body)
	for {
		got, err := in.next()
		if problem.CodeOf(err) == problem.TooLarge {
			return err
		}
		if err != nil {
			return problem.Wrap(err, problem.Unavailable, "the event stream ended")
		}
		heard()
		if got.id != "" { // more than a greeting
			t.failed = 0
		}
		if err := t.take(got); err != nil {
			return err
		}
	}
}

func (t *tail) take(got frame) error {
	at := t.at
	if got.id != "" {
		next, err := ParseCursor(got.id)
		if err != nil {
			return problem.Wrap(err, problem.Internal, "the event stream names a place that this version of execwarden does not read")
		}
		at = at.further(next)
	}
	switch got.name {
	case "notice", "gap":
		return t.tell(got, at)
	case "news":
		var said call.News
		if to, ok := t.to.(NewsReader); ok && json.Unmarshal(got.data, &said) == nil {
			to.News(said)
		}
		return nil
	case "", "message":
	default:
		return nil // a newer server's
	}
	if len(got.data) == 0 {
		t.at = at
		return nil
	}
	var e Event
	if err := json.Unmarshal(got.data, &e); err != nil {
		return problem.Wrap(err, problem.Internal, "the event stream sends what this version of execwarden does not read")
	}
	if !t.at.covers(e) {
		if err := t.to.Event(e, at); err != nil {
			return &readerError{err}
		}
	}
	t.at = at
	return nil
}

func (t *tail) tell(got frame, at Cursor) error {
	var d problem.Detail
	if err := json.Unmarshal(got.data, &d); err != nil || d.Message == "" {
		d.Message = string(got.data)
	}
	t.at = at
	if got.name == "gap" {
		t.to.Gap(d)
		return nil
	}
	t.to.Notice(d)
	if d.Code == problem.Unauthenticated { // the server ends the stream now, and the token opens no other
		return d.Err()
	}
	return nil
}
