package counter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, b *buskit.Bus) *Counters {
	t.Helper()
	c, err := Open(t.Context(), b.Conn(t, "toolbroker"), func(context.Context, Call) (bool, error) { return false, nil })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func call(n int) Call {
	return Call{Tenant: "tnt_a", Grant: "grt_g", Run: "run_r", Call: id.Call(fmt.Sprintf("call_%d", n))}
}

// Two brokers race for ten places with forty calls: ten get one, whoever asks.
func TestTheTenthOfTenCallsHoldsWithTwoBrokersRacing(t *testing.T) {
	b := buskit.Start(t)
	brokers := []*Counters{open(t, b), open(t, b)}
	var got atomic.Int32
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			reached, err := brokers[n%2].Reserve(t.Context(), call(n), grant.Limits{Calls: 10})
			if err != nil {
				t.Error(err)
			}
			if reached == "" {
				got.Add(1)
			}
		})
	}
	wg.Wait()
	if got.Load() != 10 {
		t.Errorf("%d calls got one of ten places", got.Load())
	}
}

func TestACallIsCountedOnce(t *testing.T) {
	c := open(t, buskit.Start(t))
	for range 5 {
		if reached, err := c.Reserve(t.Context(), call(1), grant.Limits{Calls: 1, PerRun: 1}); err != nil || reached != "" {
			t.Fatalf("the same call again: %q, %v", reached, err)
		}
	}
	if reached, err := c.Reserve(t.Context(), call(2), grant.Limits{Calls: 1}); err != nil || reached == "" {
		t.Errorf("a second call: %q, %v", reached, err)
	}
}

func TestLimitsPerRunAndMinute(t *testing.T) {
	c := open(t, buskit.Start(t))
	now := time.Date(2026, 11, 30, 12, 0, 59, 0, time.UTC)
	c.now = func() time.Time { return now }
	limits := grant.Limits{PerRun: 2, PerMinute: 3}
	try := func(run id.Run, n int) bool {
		t.Helper()
		one := call(n)
		one.Run = run
		reached, err := c.Reserve(t.Context(), one, limits)
		if err != nil {
			t.Fatal(err)
		}
		return reached == ""
	}
	if !try("run_a", 1) || !try("run_a", 2) || try("run_a", 3) {
		t.Error("two calls a run")
	}
	if !try("run_b", 4) || try("run_b", 5) {
		t.Error("three calls a minute")
	}
	now = now.Add(2 * time.Second)
	if !try("run_c", 6) {
		t.Error("the next minute has places again")
	}
}

// Of twenty calls that two brokers race with, four have a place at once; one that ends makes room for one more.
func TestCallsAtOnceWithTwoBrokersRacing(t *testing.T) {
	b := buskit.Start(t)
	brokers := []*Counters{open(t, b), open(t, b)}
	var over sync.Map
	for _, c := range brokers {
		c.ended = func(_ context.Context, c Call) (bool, error) {
			_, ended := over.Load(c.Call)
			return ended, nil
		}
	}
	limits := grant.Limits{AtOnce: 4}
	var got atomic.Int32
	var in sync.Map
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			reached, err := brokers[n%2].Reserve(t.Context(), call(n), limits)
			if err != nil {
				t.Error(err)
			}
			if reached == "" {
				got.Add(1)
				in.Store(call(n).Call, true)
			}
		})
	}
	wg.Wait()
	if got.Load() != 4 {
		t.Fatalf("%d calls at once, want 4", got.Load())
	}
	in.Range(func(k, _ any) bool { over.Store(k, true); return false })
	for n := range 2 {
		reached, err := brokers[n].Reserve(t.Context(), call(100+n), limits)
		if err != nil || (reached == "") != (n == 0) {
			t.Errorf("call %d after one ended: %q, %v", n, reached, err)
		}
	}
	if reached, err := brokers[1].Reserve(t.Context(), call(100), limits); err != nil || reached != "" {
		t.Errorf("the same call again: %q, %v", reached, err)
	}
	// Whether a call has ended cannot be told: no place is given away.
	brokers[0].ended = func(context.Context, Call) (bool, error) { return false, errors.New("away") }
	if reached, err := brokers[0].Reserve(t.Context(), call(200), limits); err == nil || reached != "" {
		t.Errorf("%q, %v", reached, err)
	}
}
