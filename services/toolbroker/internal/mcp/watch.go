package mcp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
)

// watchRetryMost is the longest wait before a server whose stream ended is asked again.
var watchRetryMost = 30 * time.Second

// watches are the resources that somebody wants to hear of. One goroutine tells the server so, in a session of its own.
type watches struct {
	updated func(uri string)
	wake    chan struct{} // what is wanted changed

	mu   sync.Mutex
	want map[string]*watch
}

// watch is one resource. err is read after settled is closed.
type watch struct {
	settled chan struct{} // closed when the server has agreed, or not
	done    bool
	err     error
}

func (w *watches) look() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// settle says how it went to whoever waits. What the server refused is wanted no more.
func (w *watches) settle(uri string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.want[uri]
	if one == nil {
		return
	}
	if err != nil {
		delete(w.want, uri)
	}
	if !one.done {
		one.done, one.err = true, err
		close(one.settled)
	}
}

// fail ends the waits for a server that cannot be asked now. What it had agreed to before is asked for again.
func (w *watches) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uri, one := range w.want {
		if !one.done {
			one.done, one.err = true, err
			close(one.settled)
			delete(w.want, uri)
		}
	}
}

func (w *watches) wanted() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]bool, len(w.want))
	for uri := range w.want {
		out[uri] = true
	}
	return out
}

// Watching has updated called with each watched resource that the server says has changed, and with all of them after a time in
// which it could not be heard. It must not block. It is called once, before the provider is used, and ends with Close.
func (p *Provider) Watching(updated func(uri string)) {
	p.watches = &watches{updated: updated, wake: make(chan struct{}, 1), want: map[string]*watch{}}
	p.running.Go(p.watchAll)
}

// Watch implements upstream.Watcher.
func (p *Provider) Watch(ctx context.Context, uri string) error {
	if p.watches == nil {
		return problem.New(problem.Invalid, "a program beside the broker is not watched for changes of its resources")
	}
	p.watches.mu.Lock()
	one := p.watches.want[uri]
	if one == nil {
		one = &watch{settled: make(chan struct{})}
		p.watches.want[uri] = one
		p.watches.look()
	}
	p.watches.mu.Unlock()
	select {
	case <-one.settled:
		return one.err
	case <-p.ctx.Done():
		return problem.New(problem.Unavailable, "the connection is being closed")
	case <-ctx.Done():
		return problem.Wrap(ctx.Err(), problem.Unavailable, "the MCP server takes too long to take a subscription")
	}
}

// Unwatch implements upstream.Watcher.
func (p *Provider) Unwatch(uri string) {
	if p.watches == nil {
		return
	}
	p.watches.mu.Lock()
	delete(p.watches.want, uri)
	p.watches.mu.Unlock()
	p.watches.look()
}

// watchAll is in touch with the server for as long as somebody watches.
func (p *Provider) watchAll() {
	w := p.watches
	again, missed := newRetry(watchRetryMost), false
	for {
		if len(w.wanted()) == 0 {
			again, missed = newRetry(watchRetryMost), false
			select {
			case <-p.ctx.Done():
				return
			case <-w.wake:
			}
			continue
		}
		began := time.Now()
		heard, err := p.attend(p.ctx, missed)
		if p.ctx.Err() != nil {
			return
		}
		missed = missed || heard
		if err != nil {
			w.fail(err)
		}
		select {
		case <-p.ctx.Done():
			return
		case <-w.wake: // somebody waits, and is told at once how it goes
		case <-time.After(again.pause(time.Since(began))):
		}
	}
}

// attend tells the server what is watched, and again whenever that changes, until its stream ends or nothing is watched. heard
// says that it was in touch.
func (p *Provider) attend(ctx context.Context, missed bool) (heard bool, err error) {
	var at *ear
	defer func() { at.close() }()
	for {
		want := p.watches.wanted()
		if len(want) == 0 {
			return heard, nil
		}
		if at, err = p.tune(ctx, at, want); err != nil {
			return heard, err
		}
		for uri := range at.told {
			p.watches.settle(uri, nil)
			if missed {
				p.watches.updated(uri)
			}
		}
		heard, missed = true, false
		select {
		case <-ctx.Done():
			return heard, nil
		case <-at.way.ended:
			return heard, problem.New(problem.Unavailable, "the MCP server's stream of news ended")
		case <-p.watches.wake:
		}
	}
}

// tune has the server tell of what is wanted and of nothing else. Where the protocol has a stream for each set of resources there
// is a new one before the last is let go of: nothing is missed between them.
func (p *Provider) tune(ctx context.Context, at *ear, want map[string]bool) (*ear, error) {
	if at != nil && at.same(want) {
		return at, nil
	}
	if at == nil || at.modern() {
		next, err := p.listenFor(ctx, want)
		if err != nil {
			return at, err
		}
		at.close()
		at = next
	}
	if at.modern() {
		return at, nil
	}
	return at, at.subscribe(ctx, p.watches, want)
}

// ear is a session in which a server tells of resources.
type ear struct {
	session *mcp.ClientSession
	way     *streams
	cancel  context.CancelFunc
	told    map[string]bool // what it agreed to tell of
}

func (e *ear) modern() bool { return e.session.InitializeResult().ProtocolVersion >= "2026-07-28" }

// same says whether a set is what the server tells of: what it refused is wanted no more.
func (e *ear) same(want map[string]bool) bool {
	if len(want) != len(e.told) {
		return false
	}
	for uri := range want {
		if !e.told[uri] {
			return false
		}
	}
	return true
}

func (e *ear) close() {
	if e == nil {
		return
	}
	_ = e.session.Close() // it is not used any more, whatever the server says
	e.cancel()
}

var errTellsNothing = problem.New(problem.Invalid, "the MCP server of this connection does not tell of changes of its resources")

// listenFor makes a session. In the protocol of 2026-07-28 it also asks for what is wanted, in one stream.
func (p *Provider) listenFor(ctx context.Context, want map[string]bool) (*ear, error) {
	ctx, cancel := context.WithCancel(ctx)
	e := &ear{way: &streams{ctx: ctx, next: p.client.Transport, ended: make(chan struct{})}, cancel: cancel, told: map[string]bool{}}
	agreed := make(chan []string, 1)
	client := newClient(&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			if r.Params != nil {
				p.watches.updated(r.Params.URI)
			}
		}})
	client.AddSendingMiddleware(listening(want))
	client.AddReceivingMiddleware(agreeing(agreed))
	var err error
	e.session, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: p.url, HTTPClient: e.way.client(p.client), MaxRetries: -1}, nil)
	if err != nil {
		cancel()
		return nil, problem.Wrap(err, problem.Unavailable, "the MCP server does not take the connection")
	}
	if caps := e.session.InitializeResult().Capabilities; caps == nil || caps.Resources == nil || !caps.Resources.Subscribe || e.way.refused.Load() {
		e.close()
		return nil, errTellsNothing
	}
	if !e.modern() {
		if !e.way.open.Load() { // the SDK asks for it before it has connected
			e.close()
			return nil, problem.New(problem.Unavailable, "the MCP server does not open its stream of news")
		}
		return e, nil
	}
	if err := e.session.Subscribe(ctx, &mcp.SubscribeParams{URI: theSet}); err != nil {
		e.close()
		return nil, problem.Wrap(err, problem.Unavailable, "the MCP server does not take a subscription")
	}
	late := time.NewTimer(connectWithin)
	defer late.Stop()
	select {
	case some := <-agreed:
		for _, uri := range some {
			if want[uri] {
				e.told[uri] = true
			}
		}
		for uri := range want {
			if !e.told[uri] {
				p.watches.settle(uri, errTellsNothing)
			}
		}
		return e, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-e.way.ended:
		err = errors.New("the stream ended before it began")
	case <-late.C:
		err = errors.New("nothing was agreed to in time")
	}
	e.close()
	if e.way.refused.Load() {
		return nil, errTellsNothing
	}
	return nil, problem.Wrap(err, problem.Unavailable, "the MCP server does not take a subscription")
}

// theSet stands for all resources of a stream where the SDK takes one.
const theSet = "execwarden:watched"

// listening has the SDK's request for one resource be one for a whole set: a stream for each would be a connection for each.
func listening(want map[string]bool) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if p, ok := r.GetParams().(*mcp.SubscriptionsListenParams); ok && p != nil && p.Notifications != nil {
				p.Notifications.ResourceSubscriptions = nil
				for uri := range want {
					p.Notifications.ResourceSubscriptions = append(p.Notifications.ResourceSubscriptions, uri)
				}
			}
			return next(ctx, method, r)
		}
	}
}

// agreeing tells what the server agreed to.
func agreeing(agreed chan<- []string) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if p, ok := r.GetParams().(*mcp.SubscriptionsAcknowledgedParams); ok && p != nil {
				select {
				case agreed <- p.Notifications.ResourceSubscriptions:
				default: // it agreed before
				}
			}
			return next(ctx, method, r)
		}
	}
}

// subscribe is the same in the protocols before, one resource at a time. An error says that the session broke.
func (e *ear) subscribe(ctx context.Context, w *watches, want map[string]bool) error {
	for uri := range e.told {
		if !want[uri] {
			if err := e.within(ctx, func(ctx context.Context) error { return e.session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}) }); err != nil {
				return problem.Wrap(err, problem.Unavailable, "the MCP server does not end a subscription")
			}
			delete(e.told, uri)
		}
	}
	for uri := range want {
		if e.told[uri] {
			continue
		}
		err := e.within(ctx, func(ctx context.Context) error { return e.session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}) })
		var refused *jsonrpc.Error
		switch {
		case err == nil:
			e.told[uri] = true
		case errors.As(err, &refused) && refused.Code != rejectedByTransport:
			w.settle(uri, problem.Wrap(err, problem.Upstream, "the MCP server refused the subscription: %.300s", refused.Message))
		default:
			return problem.Wrap(err, problem.Unavailable, "the MCP server does not take a subscription")
		}
	}
	return nil
}

func (e *ear) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	return do(ctx)
}
