package toolbroker

import (
	"fmt"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// What is watched is bounded, of one conversation and of one connection; a lease that is not asked for again lapses, and makes room;
// what nobody watches is let go of, and nothing is said of it.
func TestWatchingIsBounded(t *testing.T) {
	var gone []watchKey
	w := newWatching(func(key watchKey) { gone = append(gone, key) })
	at := providerKey{connectionKey{"tnt_a", "con_x"}, ""}
	key := func(n int) watchKey { return watchKey{at, fmt.Sprint("x:", n)} }
	who := func(n int) watcher { return watcher{"tnt_a", "agt_a", id.Conversation(fmt.Sprint("mcp_", n))} }
	now := time.Unix(1000, 0)
	for n := range maxWatchedAt {
		if fresh, err := w.lease(who(n/maxWatchedBy), key(n), now); !fresh || err != nil {
			t.Fatalf("%d: %v, %v", n, fresh, err)
		}
	}
	if _, err := w.lease(who(0), key(maxWatchedAt-1), now); problem.CodeOf(err) != problem.Busy {
		t.Errorf("one more of a conversation: %v", err)
	}
	if _, err := w.lease(who(99), key(maxWatchedAt), now); problem.CodeOf(err) != problem.Busy {
		t.Errorf("one more of a connection: %v", err)
	}
	if fresh, err := w.lease(who(99), key(0), now); !fresh || err != nil {
		t.Errorf("one that is watched, by another: %v, %v", fresh, err)
	}
	if fresh, err := w.lease(who(0), key(0), now.Add(2*time.Minute)); fresh || err != nil {
		t.Errorf("asked for again: %v, %v", fresh, err)
	}
	w.came(key(0))
	w.came(key(0))
	w.came(key(1))
	w.came(key(maxWatchedAt)) // which nobody watches
	w.end(who(0), "con_x", "x:1")
	if due := w.take(); len(due) != 1 || due[0] != key(0) {
		t.Errorf("%v is said", due)
	}
	w.lapse(now.Add(watchLease + time.Second))
	if len(w.by) != 1 || len(gone) != maxWatchedAt-1 || w.by[key(0)][who(0)].IsZero() {
		t.Errorf("%d are left, %d let go of", len(w.by), len(gone))
	}
	w.lapse(now.Add(3*time.Minute + watchLease))
	if len(w.by)+len(w.at)+len(w.of)+len(w.leases)+len(w.watched) != 0 || len(gone) != maxWatchedAt {
		t.Errorf("%+v", w)
	}
}
