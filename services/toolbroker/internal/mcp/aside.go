package mcp

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// aside is the way out of a session in which a server asks. What it asks comes on the stream of the call, or beside it, on a stream
// that the client opens with GET: servers made with the TypeScript SDK ask there. The SDK gets such a stream at once and for as
// long as the session lasts; that the server's own breaks, or that it has none, is nothing that a session ends by.
type aside struct {
	next    http.RoundTripper
	running *sync.WaitGroup
}

// RoundTrip implements http.RoundTripper.
func (a aside) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || r.Header.Get(lastEvent) != "" { // the SDK's own, of a call's stream that broke
		return a.next.RoundTrip(r)
	}
	body, w := io.Pipe()
	a.running.Go(func() { a.keep(r, w) })
	return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, ContentLength: -1, Request: r}, nil
}

const lastEvent = "Last-Event-ID"

// keep opens the server's stream again and again until the session ends, or the server says that it has none.
func (a aside) keep(r *http.Request, w *io.PipeWriter) {
	ctx := r.Context()
	defer func() { _ = w.CloseWithError(context.Cause(ctx)) }()
	last := ""
	for again := newRetry(retryMost); ; {
		began := time.Now()
		if !a.hear(r, w, &last) {
			<-ctx.Done() // an end of the stream would have the SDK open another
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again.pause(time.Since(began))):
		}
	}
}

// hear passes the events of one stream on, whole. It is false when there is no use in another.
func (a aside) hear(r *http.Request, w io.Writer, last *string) bool {
	r = r.Clone(r.Context())
	if *last != "" {
		r.Header.Set(lastEvent, *last)
	}
	resp, err := a.next.RoundTrip(r)
	if err != nil {
		return true
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
	}
	var event []byte
	id := *last
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadSlice('\n')
		event = append(event, line...)
		if len(event) > maxMessage {
			return false
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return true // what is not whole is not passed on
		}
		field := bytes.TrimRight(event[bytes.LastIndexByte(event[:len(event)-1], '\n')+1:], "\r\n")
		if rest, ok := bytes.CutPrefix(field, []byte("id:")); ok {
			id = string(bytes.TrimSpace(rest))
		}
		if len(field) > 0 {
			continue
		}
		if _, err := w.Write(event); err != nil {
			return false
		}
		event, *last = event[:0], id
	}
}
