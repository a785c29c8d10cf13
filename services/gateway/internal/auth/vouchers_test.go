package auth

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestVouchersEndAndAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	v := newVouchers(time.Minute, 2, 3)
	issue := func(token byte, at time.Time) string {
		t.Helper()
		text, _, err := v.issue(Hash{token}, at)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := issue(1, now)
	second := issue(1, now.Add(time.Second))
	third := issue(1, now.Add(2*time.Second))
	if _, ok := v.find(first, now); ok {
		t.Error("the oldest of a token did not make room")
	}
	if h, ok := v.find(second, now); !ok || h != (Hash{1}) {
		t.Error("a valid voucher is not found")
	}
	issue(2, now)
	if _, _, err := v.issue(Hash{3}, now); problem.CodeOf(err) != problem.Busy {
		t.Errorf("more than there may be: %v", err)
	}
	if _, ok := v.find(third, now.Add(62*time.Second)); ok {
		t.Error("a voucher outlived its time")
	}
	issue(3, now.Add(2*time.Minute)) // what has ended makes room
}

func TestVoucherIsTakenOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	v := newVouchers(time.Minute, 2, 3)
	text, _, err := v.issue(Hash{1}, now)
	if err != nil {
		t.Fatal(err)
	}
	var taken atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, ok := v.take(text, now); ok {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	if taken.Load() != 1 {
		t.Errorf("taken %d times", taken.Load())
	}
}
