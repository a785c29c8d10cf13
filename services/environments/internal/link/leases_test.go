package link

import (
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
)

// A lease holds while it is renewed; what has ended, lapsed or is older is refused, whoever says otherwise later.
func TestLeases(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := newLeases(func() time.Time { return now })
	lease := connector.Lease{Attachment: "att_1", Volume: "main", Epoch: 1}
	order := connector.Order{Attachment: "att_1", Volume: "main", Epoch: 1}
	check := func(what string, want problem.Code) {
		t.Helper()
		if got := problem.CodeOf(l.check(order)); l.check(order) != nil && got != want || l.check(order) == nil && want != "" {
			t.Errorf("%s: %v, want %q", what, l.check(order), want)
		}
	}
	check("before it is heard of", problem.Denied)
	if fresh := l.renew([]connector.Lease{lease}, connector.DefaultLife); len(fresh) != 1 {
		t.Errorf("fresh %v", fresh)
	}
	if fresh := l.renew([]connector.Lease{lease}, connector.DefaultLife); len(fresh) != 0 {
		t.Errorf("fresh again %v", fresh)
	}
	check("held", "")
	for what, change := range map[string]func(*connector.Order){
		"another attachment": func(o *connector.Order) { o.Attachment = "att_2" },
		"another volume":     func(o *connector.Order) { o.Volume = "other" },
		"an older epoch":     func(o *connector.Order) { o.Epoch = 0 },
		"a newer epoch":      func(o *connector.Order) { o.Epoch = 2 },
	} {
		o := order
		change(&o)
		if problem.CodeOf(l.check(o)) != problem.Denied {
			t.Errorf("%s: %v", what, l.check(o))
		}
	}
	now = now.Add(connector.DefaultLife.Duration())
	check("lapsed", problem.Unavailable)
	if o := l.orphans(time.Minute); len(o) != 0 {
		t.Errorf("orphans within their grace: %v", o)
	}
	l.renew([]connector.Lease{lease}, connector.DefaultLife)
	check("renewed", "")
	draining := lease
	draining.Draining = true
	l.renew([]connector.Lease{draining}, connector.DefaultLife)
	check("draining", problem.Denied)
	now = now.Add(connector.DefaultLife.Duration() + time.Minute + time.Second)
	if o := l.orphans(time.Minute); len(o) != 1 {
		t.Errorf("orphans %v", o)
	}
	l.end("att_1")
	if o := l.orphans(0); len(o) != 0 {
		t.Errorf("an orphan that was ended: %v", o)
	}
	l.renew([]connector.Lease{lease}, connector.DefaultLife) // said by who has not heard
	check("after its end", problem.Denied)
	l.renew([]connector.Lease{{Attachment: "att_2", Volume: "main", Epoch: 2}, {Attachment: "att_3", Volume: "main", Epoch: 1}}, connector.DefaultLife)
	if problem.CodeOf(l.check(connector.Order{Attachment: "att_3", Volume: "main", Epoch: 1})) != problem.Denied {
		t.Error("a lease of an older epoch is held beside the newer")
	}
	if err := l.check(connector.Order{Attachment: "att_2", Volume: "main", Epoch: 2}); err != nil {
		t.Error(err)
	}
}

// What an earlier life held counts as lapsed until somebody renews it.
func TestRecall(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	l := newLeases(func() time.Time { return now })
	lease := connector.Lease{Attachment: "att_1", Volume: "main", Epoch: 3}
	l.recall([]connector.Lease{lease})
	order := connector.Order{Attachment: "att_1", Volume: "main", Epoch: 3}
	if problem.CodeOf(l.check(order)) != problem.Unavailable {
		t.Errorf("before a renewal: %v", l.check(order))
	}
	if fresh := l.renew([]connector.Lease{lease}, connector.DefaultLife); len(fresh) != 1 {
		t.Errorf("it is not opened in this life: %v", fresh)
	}
	if err := l.check(order); err != nil {
		t.Error(err)
	}
	l.notOpen("att_1")
	if fresh := l.renew([]connector.Lease{lease}, connector.DefaultLife); len(fresh) != 1 {
		t.Errorf("a volume that was not ready is not tried again: %v", fresh)
	}
}

// A machine whose clock is hours off holds leases by the time that passes, and permits by the registry's clock: neither the
// one nor the other looks at what its own clock shows.
func TestWrongClock(t *testing.T) {
	for _, off := range []time.Duration{-7 * time.Hour, 7 * time.Hour} {
		l := &Link{machine: &machine{receipts: map[string]bool{}}, leases: newLeases(time.Now), keys: permit.NewKeyring(nil)}
		registry := time.Now().Add(off) // what the registry's clock shows when this machine's shows now
		l.take(t.Context(), connector.Leases{Now: registry, Leases: []connector.Lease{{Attachment: "att_1", Volume: "main", Epoch: 1}}})
		if d := l.now().Sub(registry); d < 0 || d > time.Minute {
			t.Errorf("off by %s: permits are judged at %s off the registry's time", off, d)
		}
		if err := l.leases.check(connector.Order{Attachment: "att_1", Volume: "main", Epoch: 1}); err != nil {
			t.Errorf("off by %s: %v", off, err)
		}
		// Somebody sets the clock while a lease is held. Readings are monotonic, so nothing is longer or shorter by it.
		now := time.Now()
		held := newLeases(func() time.Time { return now })
		held.renew([]connector.Lease{{Attachment: "att_1", Volume: "main", Epoch: 1}}, connector.DefaultLife)
		if until := held.held["att_1"].until; !strings.Contains(until.String(), "m=") {
			t.Errorf("a lease ends by a clock that can be set: %s", until)
		}
	}
}
