package mcp

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// maxWatched is how many resources one conversation may subscribe to.
const maxWatched = 64

// resource is one of a connection, as its server calls it.
type resource struct {
	tenant     id.Tenant
	connection id.Connection
	uri        string
}

// watch is a conversation's subscription to one resource. A session has one, without sessions each stream that names it counts.
type watch struct {
	resource
	by      *watcher
	streams int
	due     bool // the client is to be told
	owed    bool // the broker would not, or could not, say that it may be told; it is when that is so again
}

// watcher is a conversation that has subscriptions.
type watcher struct {
	id      id.Conversation
	talk    *conversation
	all     map[resource]*watch
	telling bool
}

// watches are the subscriptions of this instance. What is due is no more than what is subscribed to: a client that hears nothing
// has nothing pile up, and holds up nobody.
type watches struct {
	mu sync.Mutex
	by map[*conversation]*watcher
	of map[resource]map[*watch]struct{}
}

func newWatches() *watches {
	return &watches{by: map[*conversation]*watcher{}, of: map[resource]map[*watch]struct{}{}}
}

// add notes a subscription before the broker is asked for it, so that no news are missed. fresh says that it is to be left again.
// Problems: busy.
func (w *watches) add(c *conversation, r resource) (one *watch, fresh bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := w.by[c]
	if by == nil {
		by = &watcher{id: id.New[id.Conversation](), talk: c, all: map[resource]*watch{}}
		w.by[c] = by
		context.AfterFunc(c.ctx, func() { w.forget(c) }) // its leases lapse
	}
	one = by.all[r]
	if one == nil {
		if len(by.all) >= maxWatched {
			return nil, false, problem.New(problem.Busy, "the conversation is subscribed to %d resources, which is the most", maxWatched)
		}
		one = &watch{resource: r, by: by}
		by.all[r] = one
		if w.of[r] == nil {
			w.of[r] = map[*watch]struct{}{}
		}
		w.of[r][one] = struct{}{}
	}
	if fresh = c.session == "" || one.streams == 0; fresh {
		one.streams++
	}
	return one, fresh, nil
}

// leave ends one stream's part in a subscription, and says whether that was the last.
func (w *watches) leave(one *watch) (last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.streams--; one.streams > 0 {
		return false
	}
	w.drop(one)
	return true
}

func (w *watches) drop(one *watch) {
	delete(one.by.all, one.resource)
	delete(w.of[one.resource], one)
	if len(w.of[one.resource]) == 0 {
		delete(w.of, one.resource)
	}
}

func (w *watches) forget(c *conversation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if by := w.by[c]; by != nil {
		for _, one := range by.all {
			w.drop(one)
		}
		delete(w.by, c)
	}
}

// named finds a session's subscriptions by URI.
func (w *watches) named(c *conversation, uri string) (out []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if by := w.by[c]; by != nil {
		for r, one := range by.all {
			if r.uri == uri {
				out = append(out, one)
			}
		}
	}
	return out
}

func (w *watches) every() (out []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range w.of {
		for one := range all {
			out = append(out, one)
		}
	}
	return out
}

// answered notes what the broker said, and whether the client is still to be told.
func (w *watches) answered(one *watch, err error) (tell bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.owed = err != nil
	return err == nil && one.streams > 0
}

// isOwed says whether the client missed news.
func (w *watches) isOwed(one *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return one.owed
}

// take gives what is due to a conversation. When there is nothing, whoever tells it is done.
func (w *watches) take(by *watcher) (out []*watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range by.all {
		if one.due {
			one.due = false
			out = append(out, one)
		}
	}
	by.telling = len(out) > 0
	return out
}

// changed has those told who subscribed to a resource, by start for each that nobody tells yet.
func (w *watches) changed(r resource, of id.Agent, start func(*watcher)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.of[r] {
		if of == "" || of == one.by.talk.who.Agent {
			w.mark(one, start)
		}
	}
}

// redefined is the same for all resources of a connection.
func (w *watches) redefined(tenant id.Tenant, c id.Connection, start func(*watcher)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r, all := range w.of {
		if r.tenant == tenant && r.connection == c {
			for one := range all {
				w.mark(one, start)
			}
		}
	}
}

// again has a client told of what it missed.
func (w *watches) again(one *watch, start func(*watcher)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.by.all[one.resource] == one {
		w.mark(one, start)
	}
}

func (w *watches) mark(one *watch, start func(*watcher)) {
	one.due = true
	if !one.by.telling {
		one.by.telling = true
		start(one.by)
	}
}

// maxUpdated is the most that the broker says of one change, in bytes.
const maxUpdated = 16 << 10 // a URI of 2 KiB, escaped

// hearUpdates has the broker's news reach those who subscribed.
func (e *Endpoint) hearUpdates() (stop func(), err error) {
	sub, err := e.Conn.NC.Subscribe(bus.UpdatedSubject("*", "*"), func(m *nats.Msg) {
		t := strings.Split(m.Subject, ".")
		var said connection.Updated
		if len(t) != 6 || len(m.Data) > maxUpdated || json.Unmarshal(m.Data, &said) != nil {
			return
		}
		e.watches.changed(resource{id.Tenant(t[3]), id.Connection(t[4]), said.URI}, said.Agent, e.startTelling)
	})
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "changes of resources cannot be heard")
	}
	return func() { _ = sub.Unsubscribe() }, nil // a connection that is gone has no subscription
}
