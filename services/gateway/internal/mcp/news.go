package mcp

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
)

// news brings what calls say while they run to whoever waits for them.
type news struct {
	mu      sync.Mutex
	waiting map[id.Call]chan *said
}

// said is one word of a call. answer is for what is asked.
type said struct {
	call.News
	answer func([]byte)
}

// maxWaiting is how many words of a call may wait for a slow client. More are lost, which the client's end sees.
const maxWaiting = 256

func newNews() *news { return &news{waiting: map[id.Call]chan *said{}} }

func (n *news) listen(conn *bus.Conn) (stop func(), err error) {
	sub, err := conn.NC.Subscribe(bus.LiveSubject("*.*.up"), func(m *nats.Msg) {
		t := strings.Split(m.Subject, ".")
		if len(t) != 6 {
			return
		}
		n.mu.Lock()
		to := n.waiting[id.Call(t[4])]
		n.mu.Unlock()
		word := &said{}
		if to == nil || json.Unmarshal(m.Data, &word.News) != nil {
			return
		}
		if m.Reply != "" {
			word.answer = func(raw []byte) { _ = m.Respond(raw) } // whoever asked does not wait for ever
		}
		select {
		case to <- word:
		default:
			if word.answer != nil { // whoever asks would wait for ever
				d := problem.Detail{Code: problem.Busy, Message: "the client takes too long to hear what is said"}
				if raw, err := json.Marshal(executor.Relayed{Problem: &d}); err == nil {
					word.answer(raw)
				}
			}
		}
	})
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "what calls say cannot be heard")
	}
	return func() { _ = sub.Unsubscribe() }, nil // a connection that is gone has no subscription
}

func (n *news) of(c id.Call) (<-chan *said, func()) {
	to := make(chan *said, maxWaiting)
	n.mu.Lock()
	n.waiting[c] = to
	n.mu.Unlock()
	return to, func() {
		n.mu.Lock()
		delete(n.waiting, c)
		n.mu.Unlock()
	}
}
