package mcp

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"

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
	waiting map[id.Call]*words
}

// said is one word of a call. answer is for what is asked.
type said struct {
	call.News
	answer func([]byte)
	size   int64
	of     *words // that it waits in; nil: none
}

// words are what a call said and its client did not hear yet.
type words struct {
	waiting chan *said
	bytes   atomic.Int64
}

// Bounds of what may wait for a slow client: words of a call, and bytes of them. More are lost, which the client's end sees.
const (
	maxWaiting      = 256
	maxWaitingBytes = 1 << 20
)

func newNews() *news { return &news{waiting: map[id.Call]*words{}} }

// offer has a word wait, if there is room for it. One goroutine offers.
func (w *words) offer(word *said, size int) bool {
	if !w.room(size) {
		return false
	}
	word.size, word.of = int64(size), w
	w.bytes.Add(word.size)
	select {
	case w.waiting <- word:
		return true
	default:
		w.bytes.Add(-word.size)
		return false
	}
}

func (w *words) room(size int) bool { return w.bytes.Load()+int64(size) <= maxWaitingBytes }

// heard makes room where a word waited.
func (s *said) heard() {
	if s.of != nil {
		s.of.bytes.Add(-s.size)
	}
}

func (n *news) listen(conn *bus.Conn) (stop func(), err error) {
	sub, err := conn.NC.Subscribe(bus.LiveSubject("*.*.up"), func(m *nats.Msg) {
		t := strings.Split(m.Subject, ".")
		if len(t) != 6 {
			return
		}
		n.mu.Lock()
		to := n.waiting[id.Call(t[4])]
		n.mu.Unlock()
		if to == nil || m.Reply == "" && !to.room(len(m.Data)) { // what is lost is not read either
			return
		}
		word := &said{}
		if json.Unmarshal(m.Data, &word.News) != nil {
			return
		}
		if m.Reply != "" {
			word.answer = func(raw []byte) { _ = m.Respond(raw) } // whoever asked does not wait for ever
		}
		if !to.offer(word, len(m.Data)) && word.answer != nil { // whoever asks would wait for ever
			d := problem.Detail{Code: problem.Busy, Message: "the client takes too long to hear what is said"}
			if raw, err := json.Marshal(executor.Relayed{Problem: &d}); err == nil {
				word.answer(raw)
			}
		}
	})
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "what calls say cannot be heard")
	}
	return func() { _ = sub.Unsubscribe() }, nil // a connection that is gone has no subscription
}

// of has what a call says wait for who follows it now. Who comes later takes that over, and goes on when the earlier one leaves.
func (n *news) of(c id.Call) (<-chan *said, func()) {
	to := &words{waiting: make(chan *said, maxWaiting)}
	n.mu.Lock()
	n.waiting[c] = to
	n.mu.Unlock()
	return to.waiting, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.waiting[c] == to {
			delete(n.waiting, c)
		}
	}
}
