package sandbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhoSpoilsWorkersWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l toll
		waits := func(tenant string) time.Duration {
			began := time.Now()
			if err := l.pay(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		credit := int(tollCredit / tollPrice())
		for range credit {
			l.charge("loud", time.Now())
		}
		if d := waits("loud"); d != 0 {
			t.Errorf("within its credit it waits %s", d)
		}
		for range 3 {
			l.charge("loud", time.Now())
		}
		if d := waits("quiet"); d != 0 {
			t.Errorf("another tenant waits %s", d)
		}
		if d := waits("loud"); d != 3*tollPrice() {
			t.Errorf("it waits %s", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l.charge("loud", time.Now())
		cancel()
		if err := l.pay(ctx, "loud"); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		time.Sleep(tollCredit + 4*tollPrice())
		l.charge("quiet", time.Now())
		if len(l.paid) != 1 {
			t.Errorf("who paid is remembered: %v", l.paid)
		}
	})
}

// A tenant that spoils workers beside others is held up, and by itself it is not.
func TestSpoiltWorkersAreCharged(t *testing.T) {
	p := newPool(t)
	spoil := of("r1", `function f() { return f() + 1 } f()`)
	for range 2 {
		if _, err := p.Run(t.Context(), "loud", spoil, &fakeHost{}); codeOf(err) != CodeStack {
			t.Fatal(err)
		}
	}
	if _, owes := p.toll.paid["loud"]; !owes {
		t.Error("nothing was charged")
	}
	if _, err := p.Run(t.Context(), "quiet", of("r1", `throw 1`), &fakeHost{}); codeOf(err) != CodeException {
		t.Fatal(err)
	}
	if _, owes := p.toll.paid["quiet"]; owes {
		t.Error("an ordinary error was charged")
	}
	p.toll.paid["loud"] = time.Now().Add(time.Hour)
	p.config.Patience = time.Millisecond
	if _, err := p.Run(t.Context(), "loud", spoil, &fakeHost{}); codeOf(err) != "busy" {
		t.Errorf("beside another tenant: %v", err)
	}
	p.gate.shared = time.Time{}
	p.gate.latest = "loud"
	p.config.Patience = time.Minute
	if _, err := p.Run(t.Context(), "loud", script(`return 1`), &fakeHost{}); err != nil {
		t.Errorf("alone: %v", err)
	}
}
