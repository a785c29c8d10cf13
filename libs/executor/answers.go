package executor

import (
	"encoding/json"
	"sync"

	"github.com/execwarden/execwarden/schemas/id"
)

// Answer is what a client says to a question of its call (call.asked) that it was not asked on the spot: it is published on the
// call's live subject down, by whatever instance the client turned to. A message there without one gives the call up.
type Answer struct {
	Ask int `json:"ask"` // of the call.asked
	Relayed
}

// question is one that a server asks during a call.
type question struct {
	tenant id.Tenant
	call   id.Call
	ask    int
}

// questions wait for their answers.
type questions struct {
	mu      sync.Mutex
	waiting map[question]chan Relayed
}

// wait gives where the answer comes: the first counts.
func (q *questions) wait(of question) (<-chan Relayed, func()) {
	to := make(chan Relayed, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[question]chan Relayed{}
	}
	q.waiting[of] = to
	return to, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.waiting, of)
	}
}

// take hands an answer over. What cannot be read, and what nobody waits for, is nothing.
func (q *questions) take(tenant id.Tenant, c id.Call, raw []byte) {
	var a Answer
	if len(raw) > MaxAnswer || json.Unmarshal(raw, &a) != nil || a.Result == nil && a.Problem == nil {
		return
	}
	q.mu.Lock()
	to := q.waiting[question{tenant, c, a.Ask}]
	q.mu.Unlock()
	select {
	case to <- a.Relayed: // for ever from nobody
	default:
	}
}
