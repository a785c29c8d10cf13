package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tenant = id.Tenant("tnt_a")

// clock is what a test's owners take for the time.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func open(t *testing.T, b *buskit.Bus, owner string, c *clock) *Claims {
	t.Helper()
	claims, err := Open(t.Context(), b.Conn(t, "toolbroker"), owner)
	if err != nil {
		t.Fatal(err)
	}
	if c != nil {
		claims.now = c.now
	}
	return claims
}

func TestOneOfManyTakesIt(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	var racers []*Claims
	for i := range 16 {
		racers = append(racers, open(t, b, fmt.Sprint("owner-", i), nil))
	}
	var took atomic.Int64
	var wait sync.WaitGroup
	for _, c := range racers {
		wait.Go(func() {
			held, err := c.Take(t.Context(), tenant, "call_1", 7)
			switch problem.CodeOf(err) {
			case "":
				took.Add(1)
				if held.TakenOver() || held.Epoch() != 1 {
					t.Errorf("the first owner has epoch %d", held.Epoch())
				}
			case problem.Busy:
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if took.Load() != 1 {
		t.Fatalf("%d took it", took.Load())
	}
	for c, want := range map[id.Call]bool{"call_1": true, "call_2": false} {
		if taken, err := racers[0].Taken(t.Context(), tenant, c); err != nil || taken != want {
			t.Errorf("%s is taken: %v, %v", c, taken, err)
		}
	}
	if _, err := racers[0].Take(t.Context(), "tnt_b", "call_1", 7); err != nil {
		t.Errorf("another tenant's call of the same name: %v", err)
	}
}

// A lapsed claim goes to one of those who want it, who knows that it is not the first.
func TestTakeover(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	c := &clock{}
	first := open(t, b, "first", c)
	held, err := first.Take(t.Context(), tenant, "call_1", 7)
	if err != nil {
		t.Fatal(err)
	}
	var heirs []*Claims
	for i := range 8 {
		heirs = append(heirs, open(t, b, fmt.Sprint("heir-", i), c))
	}
	c.ahead.Store(int64(life - 500*time.Millisecond))
	if _, err := heirs[0].Take(t.Context(), tenant, "call_1", 7); problem.CodeOf(err) != problem.Busy {
		t.Fatalf("taken over before its time: %v", err)
	}
	c.ahead.Store(int64(life + time.Second))
	var took atomic.Int64
	var wait sync.WaitGroup
	for _, h := range heirs {
		wait.Go(func() {
			got, err := h.Take(t.Context(), tenant, "call_1", 7)
			switch problem.CodeOf(err) {
			case "":
				took.Add(1)
				if !got.TakenOver() || got.Epoch() != 2 {
					t.Errorf("the heir has epoch %d", got.Epoch())
				}
			case problem.Busy:
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if took.Load() != 1 {
		t.Fatalf("%d took it over", took.Load())
	}
	// The first owner finds out, and its work ends.
	ended := make(chan error, 1)
	c.ahead.Store(int64(life))
	held.Keep(t.Context(), func(ctx context.Context) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
	})
	if cause := <-ended; problem.CodeOf(cause) != problem.Unavailable {
		t.Errorf("the work ended because %v", cause)
	}
}

// While the work goes on the claim is renewed, far beyond one life.
func TestKeepRenews(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	mine, other := open(t, b, "mine", nil), open(t, b, "other", nil)
	held, err := mine.Take(t.Context(), tenant, "call_1", 7)
	if err != nil {
		t.Fatal(err)
	}
	first := held.record.Deadline
	held.Keep(t.Context(), func(ctx context.Context) {
		buskit.Eventually(t, "the claim is renewed", func() bool {
			entry, err := other.kv.Get(t.Context(), string(tenant)+".call_1")
			return err == nil && entry.Revision() > 1
		})
		if ctx.Err() != nil {
			t.Errorf("the work ended: %v", context.Cause(ctx))
		}
		if _, err := other.Take(t.Context(), tenant, "call_1", 7); problem.CodeOf(err) != problem.Busy {
			t.Errorf("taken while it is kept: %v", err)
		}
	})
	if !held.record.Deadline.After(first) {
		t.Error("the deadline did not move")
	}
}

// With the bus away the work ends before anybody may take the claim over.
func TestKeepEndsInTime(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	claims := open(t, b, "mine", nil)
	held, err := claims.Take(t.Context(), tenant, "call_1", 7)
	if err != nil {
		t.Fatal(err)
	}
	b.Server.Halt()
	var ended time.Time
	held.Keep(t.Context(), func(ctx context.Context) {
		<-ctx.Done()
		ended = time.Now()
		if cause := context.Cause(ctx); problem.CodeOf(cause) != problem.Unavailable {
			t.Errorf("the work ended because %v", cause)
		}
	})
	if left := held.record.Deadline.Sub(ended); left < margin/2 { // half a margin for a machine that is busy
		t.Errorf("the work ended %s before others may take over", left)
	}
	if err := b.Server.Resume(); err != nil {
		t.Fatal(err)
	}
}

// deaf stores what it is told once without saying so, as a bus does whose answer gets lost.
type deaf struct {
	jetstream.KeyValue
	lose atomic.Int64
}

func (d *deaf) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	r, err := d.KeyValue.Update(ctx, key, value, revision)
	if err == nil && d.lose.Add(-1) >= 0 {
		return 0, errors.New("nats: timeout")
	}
	return r, err
}

// A renewal whose answer got lost is found, and the next ones go on from it.
func TestKeepSurvivesALostAnswer(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	claims := open(t, b, "mine", nil)
	kv := &deaf{KeyValue: claims.kv}
	kv.lose.Store(1)
	claims.kv = kv
	held, err := claims.Take(t.Context(), tenant, "call_1", 7)
	if err != nil {
		t.Fatal(err)
	}
	held.Keep(t.Context(), func(ctx context.Context) {
		buskit.Eventually(t, "three renewals, or the end", func() bool {
			entry, err := claims.kv.Get(t.Context(), string(tenant)+".call_1")
			return ctx.Err() != nil || err == nil && entry.Revision() >= 4
		})
		if ctx.Err() != nil {
			t.Errorf("one lost answer ended the work: %v", context.Cause(ctx))
		}
	})
}

// Keep returns what the caller's context says, and leaves nothing running.
func TestKeepEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	held, err := open(t, b, "mine", nil).Take(t.Context(), tenant, "call_1", 7)
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("the grant was revoked")
	ctx, cancel := context.WithCancelCause(t.Context())
	held.Keep(ctx, func(ctx context.Context) {
		cancel(why)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), why) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
	})
}

func TestDamagedClaim(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	claims := open(t, b, "mine", nil)
	if _, err := claims.kv.Put(t.Context(), string(tenant)+".call_1", []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := claims.Take(t.Context(), tenant, "call_1", 7); problem.CodeOf(err) != problem.Internal {
		t.Errorf("%v", err) // whose it was, nobody knows: not to be taken for free
	}
	b.Server.Halt()
	if _, err := claims.Take(t.Context(), tenant, "call_2", 7); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("without a bus: %v", err)
	}
	if err := b.Server.Resume(); err != nil {
		t.Fatal(err)
	}
}
