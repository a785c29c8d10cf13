package follow

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// busyLedger always has an event more.
type busyLedger struct{ seq uint64 }

func (l *busyLedger) Position(context.Context, auth.Identity) (ask.Cursor, error) {
	return ask.Cursor{}, nil
}

func (l *busyLedger) Events(_ context.Context, _ auth.Identity, q ask.Events) (ask.EventPage, error) {
	l.seq++
	return ask.EventPage{Events: []ask.Event{{Stream: "EW_ACTIVITY", Seq: l.seq}}, Next: q.After}, nil
}

type counted struct {
	mu      sync.Mutex
	events  int
	notices []problem.Code
}

func (c *counted) Event(ask.Event, ask.Cursor) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	return nil
}
func (c *counted) Caught(ask.Cursor) error { return nil }
func (c *counted) Beat(*ask.Cursor) error  { return nil }
func (c *counted) Notice(d problem.Detail) error {
	c.notices = append(c.notices, d.Code)
	return nil
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

// A doubt is settled before anything more is given: at once, and not at the next sign of life.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var verdict error
		hub := New(&busyLedger{}, func(context.Context, auth.Identity) error {
			mu.Lock()
			defer mu.Unlock()
			return verdict
		}, 10)
		set := func(err error) {
			mu.Lock()
			verdict = err
			mu.Unlock()
			hub.Doubt("tnt_a")
			synctest.Wait()
		}
		place, err := hub.Enter(auth.Identity{Tenant: "tnt_a", Member: "mem_a"})
		if err != nil {
			t.Fatal(err)
		}
		defer place.Leave()
		to := &counted{}
		ended := make(chan error, 1)
		go func() { ended <- place.Follow(t.Context(), nil, ask.Events{}, to) }()
		time.Sleep(time.Second)
		synctest.Wait()
		if to.count() == 0 {
			t.Fatal("nothing is given to one who may read")
		}
		// It cannot be told: nothing is given, and nothing ends.
		set(problem.New(problem.Unavailable, "behind"))
		before := to.count()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if to.count() != before || len(ended) != 0 {
			t.Errorf("%d events more while it could not be told", to.count()-before)
		}
		hub.Doubt("tnt_b") // others
		set(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if to.count() == before {
			t.Error("it does not go on")
		}
		set(problem.New(problem.Unauthenticated, "removed"))
		select {
		case err := <-ended:
			if problem.CodeOf(err) != problem.Unauthenticated || to.notices[len(to.notices)-1] != problem.Unauthenticated {
				t.Errorf("%v, %v", err, to.notices)
			}
		default:
			t.Error("it is still open")
		}
	})
}
