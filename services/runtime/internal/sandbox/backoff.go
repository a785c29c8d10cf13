package sandbox

import (
	"context"
	"time"
)

// backoff spaces attempts that fail, so that a host that cannot start a process is not kept busy failing.
type backoff struct{ next time.Duration }

const (
	backoffFirst = 50 * time.Millisecond
	backoffMost  = 5 * time.Second
)

func newBackoff() *backoff { return &backoff{next: backoffFirst} }

func (b *backoff) reset() { b.next = backoffFirst }

// wait pauses, twice as long each time, or until ctx ends.
func (b *backoff) wait(ctx context.Context) {
	pause := time.NewTimer(b.next)
	defer pause.Stop()
	b.next = min(2*b.next, backoffMost)
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}
