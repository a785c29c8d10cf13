package scripts

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/poolkit"
)

// refill is how long the pool is given to make the next worker, which is not on a script's path.
const refill = 60 * time.Millisecond

// house measures the runtime's own pool.
func house(ctx context.Context, cfg Config, log *slog.Logger, r *Report) error {
	p, err := poolkit.Open(ctx, poolkit.Config{WorkerPath: cfg.Worker, Ready: 8, Running: 64, PerTenant: 64, Queue: 1024, Patience: time.Minute}, log)
	if err != nil {
		return err
	}
	defer p.Close()
	r.Tier = p.Tier()
	for _, x := range []struct {
		row     string
		run     string // its scripts but the first are warm
		source  string
		divided int
	}{
		{rows[0].name, "run", tiny, 1}, {rows[1].name, "", tiny, 1}, {rows[2].name, "", oneCall, 1}, {rows[3].name, "", manyCalls, callsOf}, {rows[4].name, "", transform, 1},
	} {
		took, err := one(ctx, p, cfg.Scripts, "tenant", x.run, x.source)
		if err != nil {
			return err
		}
		r.set(House, x.row, ms(median(took))/float64(x.divided))
	}
	for i, callers := range []int{1, 16, 64} {
		n, err := hammer(ctx, cfg.Round, callers, func(ctx context.Context) error { _, err := p.Run(ctx, "tenant", "", oneCall); return err })
		if err != nil {
			return err
		}
		r.set(House, rows[5+i].name, n)
	}
	n, err := hammer(ctx, cfg.Round, 1, p.Spare)
	if err != nil {
		return err
	}
	r.set(House, rows[8].name, n)
	time.Sleep(time.Second) // the workers that are ready come to rest
	rss, err := idleRSS()
	r.set(House, rows[9].name, rss)
	return err
}

// one runs a script many times, one after the other, with pauses in which the pool does what is on no script's path. Scripts of
// a run are warm, and it is an error if they are not.
func one(ctx context.Context, p *poolkit.Pool, times int, tenant, run, source string) (took []time.Duration, err error) {
	if run != "" {
		if _, err := p.Run(ctx, tenant, run, source); err != nil {
			return nil, err
		}
	}
	for range times {
		time.Sleep(refill)
		ran, err := p.Run(ctx, tenant, run, source)
		if err != nil {
			return nil, err
		}
		if run != "" && !ran.Warm {
			return nil, problem.New(problem.Internal, "a later script of a run had no worker of its run")
		}
		took = append(took, ran.Took)
	}
	return took, nil
}

// hammer does something with many callers for a while and gives how often a second.
func hammer(ctx context.Context, d time.Duration, callers int, do func(context.Context) error) (float64, error) {
	var n atomic.Int64
	began, end := time.Now(), time.Now().Add(d)
	var all sync.WaitGroup
	failed := make(chan error, callers)
	for range callers {
		all.Go(func() {
			for time.Now().Before(end) {
				if err := do(ctx); err != nil {
					failed <- err
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return float64(n.Load()) / time.Since(began).Seconds(), nil
	}
}

// idleRSS is the mean resident memory of this process's children in MiB: the workers that are ready.
func idleRSS() (float64, error) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		return 0, problem.Wrap(err, problem.Internal, "the kernel does not say which processes this one has")
	}
	var total float64
	n := 0
	for _, list := range lists {
		raw, _ := os.ReadFile(list) // of a thread that has ended
		for _, pid := range strings.Fields(string(raw)) {
			status, err := os.ReadFile("/proc/" + pid + "/status")
			if err != nil || !strings.HasPrefix(string(status), "Name:\tjsworker") && !strings.HasPrefix(string(status), "Name:\t4\n") {
				continue
			}
			_, after, _ := strings.Cut(string(status), "VmRSS:")
			if f := strings.Fields(after); len(f) > 0 {
				kib, err := strconv.ParseFloat(f[0], 64)
				if err != nil {
					return 0, err
				}
				total += kib / 1024
				n++
			}
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("no idle worker was found")
	}
	return total / float64(n), nil
}

// hostile are scripts that take what they can until they are stopped.
var hostile = []string{
	"for(;;){}",
	"const a = []; for(;;) a.push('x'.repeat(1000))",
	"for(;;) JSON.parse(JSON.stringify(Array(1000).fill({a: 1})))",
	"let s = 'x'; for(;;) s += s",
	"return /^(?=a)(a+)+$/.test('a'.repeat(40) + '!')",
	"function f(){ return f() + 1 } f()",
	"await Promise.all(Array.from({length: 100}, (_, i) => tools.a.b({x: i}))); for(;;){}",
	"for(;;) console.log('x'.repeat(1000))",
}

// neighbours measures an innocent tenant alone and beside a hostile one, with the pool's default bounds.
func neighbours(ctx context.Context, cfg Config, log *slog.Logger, r *Report) error {
	p, err := poolkit.Open(ctx, poolkit.Config{WorkerPath: cfg.Worker, Patience: time.Minute}, log)
	if err != nil {
		return err
	}
	defer p.Close()
	for _, kind := range []struct{ name, run string }{{"first script of a run", ""}, {"later script of a run", "run"}} {
		innocent := func(situation string) error {
			took, err := one(ctx, p, 4*cfg.Scripts, "innocent", kind.run, oneCall)
			if err != nil {
				return err
			}
			slices.Sort(took)
			r.Neighbour = append(r.Neighbour, Neighbour{kind.name + ", " + situation, len(took), ms(took[len(took)/2]), ms(took[len(took)*99/100])})
			return nil
		}
		if err := innocent("alone"); err != nil {
			return err
		}
		stop := besiege(ctx, p)
		err := innocent("beside 16 hostile runs")
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// besiege has a tenant run hostile scripts, 16 at a time, until it is told to stop.
func besiege(ctx context.Context, p *poolkit.Pool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				_, _ = p.Run(ctx, "hostile", fmt.Sprint(i), hostile[n%len(hostile)]) // each fails, as it should
			}
		})
	}
	time.Sleep(time.Second)
	return func() { cancel(); all.Wait() }
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }
