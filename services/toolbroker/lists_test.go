package toolbroker

import (
	"fmt"
	"testing"

	"github.com/execwarden/execwarden/schemas/id"
)

// Connections that are due wait for each other within their tenant, and none is listed twice at once.
func TestListsAreFair(t *testing.T) {
	l := newLists()
	for n := range 3 * maxSoon {
		l.soon(connectionKey{"tnt_many", id.Connection(fmt.Sprint("con_", n))})
	}
	one := connectionKey{"tnt_one", "con_a"}
	l.soon(one)
	first := l.take()
	if len(first) != maxSoon+1 {
		t.Fatalf("%d are listed at once: %v", len(first), first)
	}
	l.soon(one) // again, while it is listed
	if again := l.take(); len(again) != 0 {
		t.Errorf("listed twice at once: %v", again)
	}
	for _, key := range first {
		l.done(key)
	}
	rest := l.take()
	if len(rest) != maxSoon+1 {
		t.Errorf("%v", rest)
	}
	for _, key := range rest {
		l.done(key)
	}
	if last := l.take(); len(last) != maxSoon || len(l.due) != 0 {
		t.Errorf("%v, %v are left", last, l.due)
	}
}
