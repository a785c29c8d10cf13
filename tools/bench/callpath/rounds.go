package callpath

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// way is one way that a call can go. call makes one call of one of its callers and returns when the caller has the
// answer.
type way struct {
	name Name
	call func(ctx context.Context, caller int) error
}

// turn is what a way did in one round.
type turn struct {
	latencies []time.Duration // sorted
	rate      float64         // calls per second
}

func (t turn) p50() time.Duration { return quantile(t.latencies, 0.50) }

// measure gives every way its turn, round after round, and keeps the turns of a way together. The first round warms
// caches and connections up, and is thrown away.
func measure(ctx context.Context, ways []way, callers int, cfg Config) ([][]turn, error) {
	all := make([][]turn, len(ways))
	for round := range cfg.Rounds + 1 {
		for i, w := range ways {
			length := cfg.Round
			if round == 0 {
				length /= 3
			}
			t, err := w.take(ctx, callers, length)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				all[i] = append(all[i], t)
			}
		}
	}
	return all, nil
}

// take lets callers call for a while. Each makes at least one call.
func (w way) take(ctx context.Context, callers int, length time.Duration) (turn, error) {
	var (
		mu    sync.Mutex
		all   []time.Duration
		first error
		wg    sync.WaitGroup
	)
	began := time.Now()
	for c := range callers {
		wg.Go(func() {
			var mine []time.Duration
			var err error
			for done := false; !done && err == nil; done = time.Since(began) >= length {
				start := time.Now()
				err = w.call(ctx, c)
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	rate := float64(len(all)) / time.Since(began).Seconds()
	slices.Sort(all)
	return turn{all, rate}, first
}

// quantile of what is sorted.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func median(of []float64) float64 {
	of = slices.Clone(of)
	slices.Sort(of)
	if n := len(of); n%2 == 0 {
		return (of[n/2-1] + of[n/2]) / 2
	}
	return of[len(of)/2]
}
