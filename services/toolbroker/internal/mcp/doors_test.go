package mcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/execwarden/execwarden/schemas/id"
)

// A door is closed when nobody used it for a while, counted from the end of the last call, and never under one.
func TestDoors(t *testing.T) {
	var d doors
	now := time.Now()
	key := func(n int) doorKey { return doorKey{conversation: id.Run(fmt.Sprint("mcp_", n))} }
	take := func(n int, at time.Time) *door {
		t.Helper()
		one, ok := d.take(key(n), at)
		if !ok {
			t.Fatalf("no door for %d", n)
		}
		return one
	}
	asking, idle := take(1, now), take(2, now)
	d.leave(idle, now)
	at := now.Add(time.Hour)
	d.leave(take(3, at), at)
	if d.open[key(1)] != asking || d.open[key(2)] != nil {
		t.Errorf("with a call under way: %v, without: %v", d.open[key(1)], d.open[key(2)])
	}
	if take(1, at) != asking {
		t.Error("another call of the client has another door")
	}
	d.leave(asking, at)
	at = at.Add(time.Hour)
	d.leave(take(4, at), at)
	if d.open[key(1)] != asking {
		t.Error("it is closed when the first of two calls ended")
	}
	d.leave(asking, at)
	d.leave(take(5, at.Add(doorIdle)), at)
	if d.open[key(1)] != asking {
		t.Error("it is closed at once")
	}
	at = at.Add(doorIdle + time.Second)
	d.leave(take(6, at), at)
	if d.open[key(1)] != nil {
		t.Error("it stays open")
	}
}

// When all have calls under way there is room for nobody else, and for whoever comes when one has ended.
func TestNoRoomForADoor(t *testing.T) {
	var d doors
	now := time.Now()
	key := func(n int) doorKey { return doorKey{conversation: id.Run(fmt.Sprint("mcp_", n))} }
	for n := range maxDoors {
		if _, ok := d.take(key(n), now); !ok {
			t.Fatal(n)
		}
	}
	if one, ok := d.take(key(maxDoors), now.Add(time.Hour)); ok {
		t.Errorf("%v", one)
	}
	if _, ok := d.take(key(7), now); !ok {
		t.Error("a client that has a door does not get in")
	}
	d.leave(d.open[key(7)], now)
	d.leave(d.open[key(7)], now)
	if _, ok := d.take(key(maxDoors), now); !ok || d.open[key(7)] != nil || len(d.open) != maxDoors {
		t.Errorf("%t, %d doors", ok, len(d.open))
	}
}
