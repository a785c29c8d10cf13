// Package hints wakes whoever waits for a call's outcome. A hint is no outcome, and one that gets lost costs a poll.
package hints

import (
	"encoding/json"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// Ear hears the hints that are for one instance of a service.
type Ear struct {
	conn    *bus.Conn
	mu      sync.Mutex
	waiting map[id.Call]chan bus.Hint
}

// New makes an ear.
func New(conn *bus.Conn) *Ear {
	return &Ear{conn: conn, waiting: map[id.Call]chan bus.Hint{}}
}

// Subject is where this instance is told of a call.
func (e *Ear) Subject(c id.Call) string {
	return bus.HintSubject(e.conn.User(), e.conn.Instance(), string(c))
}

// Listen hears hints until stop.
func (e *Ear) Listen() (stop func(), err error) {
	sub, err := e.conn.NC.Subscribe(bus.HintSubject(e.conn.User(), e.conn.Instance(), "*"), func(m *nats.Msg) {
		var hint bus.Hint
		if json.Unmarshal(m.Data, &hint) != nil {
			return // nobody who should tell us writes this
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if c := e.waiting[hint.Call]; c != nil {
			select {
			case c <- hint:
			default:
			}
		}
	})
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "hints cannot be heard")
	}
	return func() { _ = sub.Unsubscribe() }, nil // a connection that is gone has no subscription
}

// Wait gives a channel that gets a word when a hint of the call comes. Who comes later takes that over, and goes on when the earlier
// one leaves, who costs a poll.
func (e *Ear) Wait(c id.Call) (<-chan bus.Hint, func()) {
	wake := make(chan bus.Hint, 1)
	e.mu.Lock()
	e.waiting[c] = wake
	e.mu.Unlock()
	return wake, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.waiting[c] == wake {
			delete(e.waiting, c)
		}
	}
}
