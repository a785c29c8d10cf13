package mcp

import (
	"math/rand/v2"
	"time"
)

// Times of asking a server again. They are variables for tests.
var (
	retryFirst  = time.Second     // after a stream ended, and twice as long each time
	retryMost   = 5 * time.Minute // servers are listed that often anyway
	steadyAfter = time.Minute     // a stream that lasted that long starts the waits anew
)

// retry is how long to wait before a server is asked again: at most as long as most, give or take half.
type retry struct{ next, most time.Duration }

func newRetry(most time.Duration) *retry { return &retry{retryFirst, most} }

// pause is until the next try, after one that lasted so long.
func (r *retry) pause(lasted time.Duration) time.Duration {
	if lasted > steadyAfter {
		r.next = retryFirst
	}
	wait := r.next/2 + rand.N(r.next) // not all at once, when a server was started anew
	r.next = min(2*r.next, r.most)
	return wait
}
