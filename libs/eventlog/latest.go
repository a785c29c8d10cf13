package eventlog

import (
	"maps"
	"slices"
	"sync"

	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

// Latest keeps, of one kind of event that carries a thing's full state, the newest of each thing. Its zero value is
// ready. Events may come again and out of order, as a view gives them.
type Latest[T schemas.Event] struct {
	mu      sync.RWMutex
	tenants map[id.Tenant]map[string]version[T]
}

type version[T any] struct {
	state T
	seq   uint64
}

// Apply takes an event, and passes over those of other kinds.
func (l *Latest[T]) Apply(s Stored) {
	var zero T
	if s.At.Kind() != zero.Kind() {
		return
	}
	state, err := Decode[T](s)
	if err != nil {
		return // of a version that this program does not know; what it knew before stays
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenants == nil {
		l.tenants = map[id.Tenant]map[string]version[T]{}
	}
	t := l.tenants[s.At.Tenant]
	if t == nil {
		t = map[string]version[T]{}
		l.tenants[s.At.Tenant] = t
	}
	if t[s.At.Key].seq < s.Seq {
		t[s.At.Key] = version[T]{state, s.Seq}
	}
}

// Get gives the newest state of the thing with that id.
func (l *Latest[T]) Get(tenant id.Tenant, key string) (T, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	v, ok := l.tenants[tenant][key]
	return v.state, ok
}

// Version gives the newest state with its sequence, which is zero for a thing that is not there: so the next state is
// appended after it, and only then.
func (l *Latest[T]) Version(tenant id.Tenant, key string) (T, uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	v := l.tenants[tenant][key]
	return v.state, v.seq
}

// All gives the newest states of a tenant's things, in the order of their ids.
func (l *Latest[T]) All(tenant id.Tenant) []T {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.tenants[tenant]
	out := make([]T, 0, len(t))
	for _, key := range slices.Sorted(maps.Keys(t)) {
		out = append(out, t[key].state)
	}
	return out
}

// Tenants lists the tenants that have any.
func (l *Latest[T]) Tenants() []id.Tenant {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Keys(l.tenants))
}
