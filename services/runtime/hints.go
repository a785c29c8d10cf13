package runtime

import (
	"encoding/json"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// hints wakes whoever waits for a call's outcome.
type hints struct {
	conn    *bus.Conn
	mu      sync.Mutex
	waiting map[id.Call]chan struct{}
}

func newHints(conn *bus.Conn) *hints {
	return &hints{conn: conn, waiting: map[id.Call]chan struct{}{}}
}

// subject is where this instance is told of a call.
func (h *hints) subject(c id.Call) string {
	return bus.HintSubject(h.conn.User(), h.conn.Instance(), string(c))
}

func (h *hints) listen() (stop func(), err error) {
	sub, err := h.conn.NC.Subscribe(bus.HintSubject(h.conn.User(), h.conn.Instance(), "*"), func(m *nats.Msg) {
		var hint bus.Hint
		if json.Unmarshal(m.Data, &hint) != nil {
			return // nobody who should tell us writes this
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if c := h.waiting[hint.Call]; c != nil {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the runtime cannot listen for hints")
	}
	return func() { _ = sub.Unsubscribe() }, nil // a connection that is gone has no subscription
}

// wait gives a channel that gets a word when a hint of the call comes.
func (h *hints) wait(c id.Call) (<-chan struct{}, func()) {
	wake := make(chan struct{}, 1)
	h.mu.Lock()
	h.waiting[c] = wake
	h.mu.Unlock()
	return wake, func() {
		h.mu.Lock()
		delete(h.waiting, c)
		h.mu.Unlock()
	}
}
