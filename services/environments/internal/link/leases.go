package link

import (
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
)

// leases is what is attached to this machine. A lease holds from when it was heard, by the monotonic clock, which nobody
// sets: so a machine that is cut off ends its leases by itself, however wrong its clock is.
type leases struct {
	now func() time.Time // with a monotonic reading

	mu    sync.Mutex
	life  connector.Life // as the registry named it last
	held  map[id.Attachment]held
	ended map[id.Attachment]time.Time // for good, whatever is said later by who has not heard of the end
	epoch map[string]int              // the newest of each volume
}

type held struct {
	connector.Lease
	until time.Time
	open  bool // in this life
}

func newLeases(now func() time.Time) *leases {
	return &leases{now: now, life: connector.DefaultLife, held: map[id.Attachment]held{}, ended: map[id.Attachment]time.Time{}, epoch: map[string]int{}}
}

// endedFor is how long an end is remembered: far longer than anybody renews a lease that has ended.
const endedFor = time.Hour

// renew takes what is said to be attached, and gives what is new.
func (l *leases) renew(all []connector.Lease, life connector.Life) (fresh []connector.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life = life
	now := l.now()
	for a, at := range l.ended {
		if now.Sub(at) > endedFor {
			delete(l.ended, a)
		}
	}
	for _, one := range all {
		if _, over := l.ended[one.Attachment]; over || one.Epoch < l.epoch[one.Volume] {
			continue // said by an instance that has not heard of the end yet
		}
		if h, known := l.held[one.Attachment]; !known || !h.open {
			fresh = append(fresh, one)
		}
		l.epoch[one.Volume] = one.Epoch
		l.held[one.Attachment] = held{one, now.Add(life.Duration()), true}
	}
	return fresh
}

// beat is how often the registry wants to hear of this machine.
func (l *leases) beat() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.life.Beat()
}

// recall takes the attachments of an earlier life. They count as lapsed until they are renewed: nothing begins, and what
// runs has its grace.
func (l *leases) recall(all []connector.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range all {
		l.held[one.Attachment] = held{one, l.now(), false}
		l.epoch[one.Volume] = max(l.epoch[one.Volume], one.Epoch)
	}
}

// notOpen notes that a volume could not be made ready: it is tried again with the next renewal.
func (l *leases) notOpen(a id.Attachment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, ok := l.held[a]; ok {
		h.open = false
		l.held[a] = h
	}
}

// check says whether an order may begin under its attachment.
func (l *leases) check(o connector.Order) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.held[o.Attachment]
	switch {
	case !ok || h.Epoch != o.Epoch || h.Volume != o.Volume || h.Epoch < l.epoch[h.Volume]:
		return problem.New(problem.Denied, "stale_lease: the attachment is not held here, or not any more")
	case !l.now().Before(h.until):
		return problem.New(problem.Unavailable, "stale_lease: nobody renewed the attachment for %s", l.life.Duration())
	case h.Draining:
		return problem.New(problem.Denied, "the attachment is being released")
	}
	return nil
}

// end forgets an attachment for good.
func (l *leases) end(a id.Attachment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, a)
	l.ended[a] = l.now()
}

// orphans lists the attachments that lapsed longer than grace ago: nobody knows any more whether they are wanted.
func (l *leases) orphans(grace time.Duration) (out []connector.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		if l.now().After(h.until.Add(grace)) {
			out = append(out, h.Lease)
		}
	}
	return out
}
