package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// A client's calls have sessions of their own with the server: what one client tells a server of itself, and what the server
// asks, is nobody else's. One that was not used for a while is closed; never one with a call under way, in which the server may
// have asked what a person answers tomorrow.
const (
	maxDoors = 256
	doorIdle = 5 * time.Minute
)

// door is one client's session with the server.
type door struct {
	opening sync.Mutex // held while it is made
	session *mcp.ClientSession
	asks    asks
	calls   int       // under way
	used    time.Time // when the last of them began or ended
}

type doorKey struct {
	conversation id.Run
	capabilities string // of a session in which the server asks; empty in the protocol that has none
}

type doors struct {
	mu      sync.Mutex
	open    map[doorKey]*door
	closing sync.WaitGroup // sessions that are being closed, and streams beside them
}

// take gives the door of a key for one call, and closes what was not used for long. leave gives it back. There is none when as many
// as there may be have calls under way.
func (d *doors) take(key doorKey, now time.Time) (one *door, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[doorKey]*door{}
	}
	one = d.open[key]
	if one == nil {
		one = &door{}
		var oldest doorKey
		var since time.Time
		for k, o := range d.open {
			switch {
			case o.calls > 0:
			case now.Sub(o.used) > doorIdle:
				d.drop(k)
			case since.IsZero() || o.used.Before(since):
				oldest, since = k, o.used
			}
		}
		if len(d.open) >= maxDoors {
			if since.IsZero() {
				return nil, false
			}
			d.drop(oldest)
		}
		d.open[key] = one
	}
	one.calls++
	one.used = now
	return one, true
}

func (d *doors) leave(one *door, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.calls--
	one.used = now
}

// put keeps the session that was made for a door, unless the door was dropped meanwhile.
func (d *doors) put(key doorKey, one *door, s *mcp.ClientSession) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[key] != one {
		return false
	}
	one.session = s
	return true
}

// drop forgets a door. Closing asks the server, which may take its time: nobody waits for it.
func (d *doors) drop(key doorKey) {
	one := d.open[key]
	delete(d.open, key)
	if one != nil && one.session != nil {
		d.closing.Go(func() { _ = one.session.Close() }) // it is not used any more, whatever the server says
	}
}

func (d *doors) forget(key doorKey, one *door) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[key] == one {
		d.drop(key)
	}
}

func (d *doors) close() {
	d.mu.Lock()
	for key := range d.open {
		d.drop(key)
	}
	d.mu.Unlock()
	d.closing.Wait()
}

// stay is one call's use of a session. Whoever has it leaves it in the end, and forgets the session if it broke.
type stay struct {
	*mcp.ClientSession
	lines         *lines // of a program's
	forget, leave func()
}

// sessionFor gives the session for a call. A program has one session, of all.
func (p *Provider) sessionFor(ctx context.Context, c *upstream.Client, x *exchange) (stay, error) {
	if c == nil || p.client == nil {
		s, l, err := p.connect(ctx)
		return stay{s, l, func() { p.forget(s) }, func() {}}, err
	}
	busy := problem.New(problem.Busy, "too many clients use the connection at once; try again")
	key := doorKey{conversation: c.Conversation}
	if !c.Modern() {
		key.capabilities = string(c.Capabilities)
	}
	one, ok := p.doors.take(key, time.Now())
	if !ok {
		return stay{}, busy
	}
	leave := func() { p.doors.leave(one, time.Now()) }
	one.opening.Lock()
	defer one.opening.Unlock()
	if one.session == nil {
		made, err := p.enter(ctx, c, &one.asks)
		if err != nil {
			p.doors.forget(key, one)
			leave()
			return stay{}, err
		}
		if !p.doors.put(key, one, made) {
			_ = made.Close() // the connection is being closed, or another call found the door broken
			leave()
			return stay{}, busy
		}
	}
	x.asks = &one.asks
	return stay{one.session, nil, func() { p.doors.forget(key, one) }, leave}, nil
}

// enter makes a session for one client.
func (p *Provider) enter(ctx context.Context, c *upstream.Client, a *asks) (*mcp.ClientSession, error) {
	if p.ctx.Err() != nil {
		return nil, problem.New(problem.Unavailable, "the connection is being closed")
	}
	ctx, watch := upstream.Watched(ctx) // its own: the session keeps it, and what ends it later is not a call's doing
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	opts := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}, MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: c.Modern()}}
	if len(c.Capabilities) > 0 {
		if err := json.Unmarshal(c.Capabilities, opts.Capabilities); err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "the client's capabilities cannot be read")
		}
	}
	client := newClient(opts)
	client.AddReceivingMiddleware(a.answer)
	transport := &mcp.StreamableClientTransport{Endpoint: p.url, HTTPClient: p.client, MaxRetries: resumes, DisableStandaloneSSE: true}
	if !c.Modern() && len(c.Capabilities) > len("{}") {
		transport.HTTPClient = &http.Client{Transport: aside{p.client.Transport, &p.doors.closing}, CheckRedirect: p.client.CheckRedirect}
		transport.DisableStandaloneSSE = false
	}
	s, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return nil, cause(problem.Wrap(err, problem.Upstream, "the MCP server does not take the connection"), watch)
	}
	askForLog(ctx, s, "debug") // the client's own level is held at its end
	return s, nil
}
