package link

import (
	"testing"
	"time"

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
