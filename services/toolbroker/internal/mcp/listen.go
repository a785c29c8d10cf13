package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Times of hearing a server. They are variables for tests.
var (
	connectWithin = 15 * time.Second // until a stream has to be open
	restAfterNews = 2 * time.Second  // more news in that time are one; twice as long after each, while they go on
)

// Listen hears from the server when its tools change, and calls changed, which must not block. It does so in a session of
// its own: calls know nothing of a stream that breaks. A server that offers no stream, or no such news, is left alone.
// It ends with Close.
func (p *Provider) Listen(changed func()) {
	p.running.Go(func() {
		for again := newRetry(retryMost); ; {
			began := time.Now()
			offered, lasted := p.hear(p.ctx, changed)
			if !offered || p.ctx.Err() != nil {
				return
			}
			steady := time.Duration(0)
			if lasted {
				steady = time.Since(began)
			}
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(again.pause(steady)):
			}
			if lasted {
				changed() // what was said meanwhile was missed
			}
		}
	})
}

// hear listens until the stream ends. offered is false when the server says that it has none; lasted is true when it was
// open.
func (p *Provider) hear(ctx context.Context, changed func()) (offered, lasted bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan struct{}, 1)
	way := &streams{ctx: ctx, next: p.client.Transport, ended: make(chan struct{})}
	client := newClient(&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}, ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		select {
		case news <- struct{}{}:
		default: // it will look anyway
		}
	}})
	// The SDK's own reconnecting would go on in the session, which a server that was started anew does not know.
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: p.url, HTTPClient: way.client(p.client), MaxRetries: -1}, nil)
	if err != nil {
		return !way.refused.Load(), false
	}
	defer func() { _ = s.Close() }()
	if caps := s.InitializeResult().Capabilities; caps == nil || caps.Tools == nil || !caps.Tools.ListChanged || way.refused.Load() {
		return false, false
	}
	rest, last := restAfterNews, time.Now()
	for ; ; rest = min(2*rest, retryMost) {
		select {
		case <-ctx.Done():
			return true, true
		case <-way.ended:
			return !way.refused.Load(), true
		case <-news:
			changed()
		}
		if time.Since(last) > rest+steadyAfter {
			rest = restAfterNews
		}
		last = time.Now()
		select { // a server that says it again and again is listed now and then
		case <-ctx.Done():
			return true, true
		case <-time.After(rest):
		}
	}
}

// streams is a way out that ends with its context, and knows what became of the stream that news come by: the SDK detaches
// requests from the context that they were made in, and waits for the stream's beginning without limit.
type streams struct {
	ctx     context.Context
	next    http.RoundTripper
	refused atomic.Bool // the server offers no stream
	open    atomic.Bool // there was one
	once    sync.Once
	ended   chan struct{}
}

// client is a client by this way, otherwise like another.
func (s *streams) client(like *http.Client) *http.Client {
	return &http.Client{Transport: s, CheckRedirect: like.CheckRedirect}
}

// RoundTrip implements http.RoundTripper.
func (s *streams) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		return s.next.RoundTrip(r) // the end of the session, which is bounded
	}
	stream := r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen"
	ctx, cancel := context.WithCancel(r.Context())
	unbind := context.AfterFunc(s.ctx, cancel)
	late := time.AfterFunc(connectWithin, cancel)
	resp, err := s.next.RoundTrip(r.WithContext(ctx))
	onTime := late.Stop()
	if err == nil && !onTime {
		resp.Body.Close()
		err = errors.New("the stream did not begin in time")
	}
	if err != nil {
		unbind()
		cancel()
		return nil, err
	}
	if stream && (resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests || resp.StatusCode == http.StatusOK && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")) {
		s.refused.Store(true)
	}
	if stream && resp.StatusCode == http.StatusOK && !s.refused.Load() {
		s.open.Store(true)
	}
	resp.Body = &closing{resp.Body, func() {
		unbind()
		cancel()
		if stream {
			s.once.Do(func() { close(s.ended) })
		}
	}}
	return resp, nil
}

// closing is a body that tells when it is closed.
type closing struct {
	io.ReadCloser
	then func()
}

func (c *closing) Close() error {
	err := c.ReadCloser.Close()
	c.then()
	return err
}
