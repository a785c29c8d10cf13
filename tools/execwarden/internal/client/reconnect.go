package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// Reconnect says how an event stream is kept up.
type Reconnect struct {
	First time.Duration // wait before the first new attempt; default 250 ms
	Most  time.Duration // longest wait; default 10 s
	Idle  time.Duration // silence after which a connection counts as dead; default 45 s, three of the server's heartbeats
}

func (r Reconnect) orDefault() Reconnect {
	if r.First <= 0 {
		r.First = 250 * time.Millisecond
	}
	if r.Most <= 0 {
		r.Most = 10 * time.Second
	}
	if r.Idle <= 0 {
		r.Idle = 45 * time.Second
	}
	return r
}

// wait waits before the nth attempt in a row, longer each time, and by chance a little less: readers that lost the
// same server do not come back at the same moment. It says whether ctx goes on.
func (r Reconnect) wait(ctx context.Context, n int) bool {
	pause := min(r.First<<min(n, 20), r.Most)
	timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
