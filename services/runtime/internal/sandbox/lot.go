package sandbox

import (
	"slices"
	"sync"
)

// owner is a run of a tenant. Nothing of a worker that served one is ever seen by another.
type owner struct{ tenant, run string }

// lot is where workers wait for the next script of the run that they served. It has no room of its own: they stand on
// the places that running scripts leave free, and go when those are needed.
type lot struct {
	mu     sync.Mutex
	parked []*parked // the one that came first, first
}

// parked is a worker between two scripts of its owner.
type parked struct {
	owner  owner
	worker *worker
	ready  bool          // its next VM is made
	gone   chan struct{} // closed as it leaves the lot, by whoever has the worker from then on
}

func (l *lot) add(o owner, w *worker) *parked {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := &parked{owner: o, worker: w, gone: make(chan struct{})}
	l.parked = append(l.parked, k)
	return k
}

// prepared says that a worker may be taken.
func (l *lot) prepared(k *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.ready = true
}

// take gives the owner's own worker that came last; nil when there is none.
func (l *lot) take(o owner) *worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range slices.Backward(l.parked) {
		if k.owner == o && k.ready {
			l.drop(k)
			return k.worker
		}
	}
	return nil
}

// remove takes a worker out of the lot, unless it has left.
func (l *lot) remove(k *parked) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	here := slices.Contains(l.parked, k)
	if here {
		l.drop(k)
	}
	return here
}

// clear takes out every worker of an owner.
func (l *lot) clear(o owner) (out []*worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range slices.Clone(l.parked) {
		if k.owner == o {
			l.drop(k)
			out = append(out, k.worker)
		}
	}
	return out
}

// shrink takes workers out until most are left: of the tenant that has the most, the one that waits longest.
func (l *lot) shrink(most int) (out []*worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.parked) > max(0, most) {
		of := map[string]int{}
		for _, k := range l.parked {
			of[k.owner.tenant]++
		}
		victim := l.parked[0]
		for _, k := range l.parked {
			if of[k.owner.tenant] > of[victim.owner.tenant] {
				victim = k
			}
		}
		l.drop(victim)
		out = append(out, victim.worker)
	}
	return out
}

func (l *lot) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.parked)
}

// drop takes one out. The caller holds mu.
func (l *lot) drop(k *parked) {
	l.parked = slices.DeleteFunc(l.parked, func(other *parked) bool { return other == k })
	close(k.gone)
}
