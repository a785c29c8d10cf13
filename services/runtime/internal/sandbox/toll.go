package sandbox

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// toll makes a tenant pay for the workers that its scripts spoil. A new one costs a processor about 20 ms, at everybody's
// priority: who spoils one after another would have the machine make workers, and nothing else.
type toll struct {
	mu   sync.Mutex
	paid map[string]time.Time // by tenant, when what it spoilt is paid for; those in the past are dropped
}

// tollCredit is how far a tenant may be behind before it waits.
const tollCredit = time.Second

// tollPrice is the time that pays for one worker, so that a tenant spends less than a tenth of the machine on them.
func tollPrice() time.Duration { return 200 * time.Millisecond / time.Duration(runtime.GOMAXPROCS(0)) }

func (t *toll) charge(tenant string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.paid == nil {
		t.paid = map[string]time.Time{}
	}
	for other, at := range t.paid {
		if at.Before(now) {
			delete(t.paid, other)
		}
	}
	at, owes := t.paid[tenant]
	if !owes {
		at = now
	}
	t.paid[tenant] = at.Add(tollPrice())
}

// due is how long a tenant has to wait for another worker.
func (t *toll) due(tenant string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, owes := t.paid[tenant]
	if !owes {
		return 0
	}
	return max(0, at.Sub(now)-tollCredit)
}

// pay waits for what a tenant owes, on the place that it has, or until ctx ends.
func (t *toll) pay(ctx context.Context, tenant string) error {
	for {
		due := t.due(tenant, time.Now())
		if due == 0 {
			return nil
		}
		wait := time.NewTimer(due)
		select {
		case <-wait.C: // others of the tenant may have spoilt more meanwhile
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		}
	}
}
