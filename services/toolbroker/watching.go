package toolbroker

import (
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of what is watched at this instance. A lease that is not asked for again lapses: a gateway that crashed has nothing
// to undo.
const (
	watchLease    = 3 * time.Minute
	maxWatchedBy  = 64     // resources of one conversation
	maxWatchedAt  = 1_000  // of one connection, or of one agent's login with it
	maxWatchedOf  = 10_000 // of one tenant
	maxWatchersOf = 20_000 // leases of one tenant
)

const asManyAsItMay = "which is the most; try again when some have ended"

// watchKey is one resource of one provider.
type watchKey struct {
	providerKey
	uri string
}

// watcher is a conversation that is told.
type watcher struct {
	tenant       id.Tenant
	agent        id.Agent
	conversation id.Conversation
}

// watching is who watches what. unwatch is called with it locked, so that what is watched again is not let go of; it waits for
// nobody.
type watching struct {
	unwatch func(watchKey)
	wake    chan struct{} // something is due

	mu      sync.Mutex
	by      map[watchKey]map[watcher]time.Time // when each lease lapses
	at      map[providerKey]int                // resources
	of      map[id.Tenant]int                  // resources
	leases  map[id.Tenant]int
	watched map[watcher]int
	due     map[watchKey]struct{} // that changed, and of which it is to be said
}

func newWatching(unwatch func(watchKey)) *watching {
	return &watching{unwatch: unwatch, wake: make(chan struct{}, 1), by: map[watchKey]map[watcher]time.Time{}, at: map[providerKey]int{},
		of: map[id.Tenant]int{}, leases: map[id.Tenant]int{}, watched: map[watcher]int{}, due: map[watchKey]struct{}{}}
}

// lease lets a conversation be told for a while. fresh says that it was not before. Problems: busy.
func (w *watching) lease(who watcher, key watchKey, now time.Time) (fresh bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.by[key]
	if _, ok := all[who]; ok {
		all[who] = now.Add(watchLease)
		return false, nil
	}
	switch {
	case w.watched[who] >= maxWatchedBy:
		return false, problem.New(problem.Busy, "the conversation watches %d resources, %s", maxWatchedBy, asManyAsItMay)
	case w.leases[who.tenant] >= maxWatchersOf:
		return false, problem.New(problem.Busy, "the tenant's agents have %d subscriptions to resources, %s", maxWatchersOf, asManyAsItMay)
	case all == nil && w.at[key.providerKey] >= maxWatchedAt:
		return false, problem.New(problem.Busy, "%d resources of the connection are watched, %s", maxWatchedAt, asManyAsItMay)
	case all == nil && w.of[key.tenant] >= maxWatchedOf:
		return false, problem.New(problem.Busy, "the tenant's agents watch %d resources, %s", maxWatchedOf, asManyAsItMay)
	}
	if all == nil {
		all = map[watcher]time.Time{}
		w.by[key] = all
		w.at[key.providerKey]++
		w.of[key.tenant]++
	}
	all[who] = now.Add(watchLease)
	w.watched[who]++
	w.leases[who.tenant]++
	return true, nil
}

// end ends a lease, under whichever login it was.
func (w *watching) end(who watcher, c id.Connection, uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range []id.Agent{"", who.agent} {
		key := watchKey{providerKey{connectionKey{who.tenant, c}, a}, uri}
		if _, ok := w.by[key][who]; ok {
			w.drop(who, key)
		}
	}
}

// lapse ends the leases that were not asked for again.
func (w *watching) lapse(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, all := range w.by {
		for who, until := range all {
			if now.After(until) {
				w.drop(who, key)
			}
		}
	}
}

func (w *watching) drop(who watcher, key watchKey) {
	delete(w.by[key], who)
	less(w.watched, who)
	less(w.leases, who.tenant)
	if len(w.by[key]) > 0 {
		return
	}
	delete(w.by, key)
	delete(w.due, key)
	less(w.at, key.providerKey)
	less(w.of, key.tenant)
	w.unwatch(key)
}

func less[K comparable](of map[K]int, key K) {
	if of[key]--; of[key] == 0 {
		delete(of, key)
	}
}

// came notes that a resource changed, if it is watched. It does not block, and what is noted is no more than what is watched.
func (w *watching) came(key watchKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by[key] == nil {
		return
	}
	w.due[key] = struct{}{}
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyway
	}
}

func (w *watching) take() (out []watchKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.due {
		out = append(out, key)
	}
	clear(w.due)
	return out
}
