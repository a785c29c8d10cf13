package sandbox

import "sync"

// turnstile lets a bounded number of requests be open at the host, in the order of issue: the same on every run of a
// script whose answers come in the same order, whatever the scheduler does.
type turnstile struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{} // the next first
}

func newTurnstile(most int) *turnstile { return &turnstile{free: most} }

// queue takes the next place. The channel is closed when its turn has come.
func (t *turnstile) queue() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := make(chan struct{})
	if t.free > 0 {
		t.free--
		close(turn)
		return turn
	}
	t.waiting = append(t.waiting, turn)
	return turn
}

// leave gives a turn on. One whose request was given up while it waited is never left: its script has ended.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}
