package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/workerkit"
)

func TestWorkersAreJailed(t *testing.T) {
	p := newPool(t)
	r := p.Isolation()
	if p.Tier() != TierJailed || !r.Seccomp || !r.NoNewPrivs || !r.Rlimits || !r.FilesDenied || !r.SocketDenied ||
		!r.ExecDenied || !r.EmptyEnv || r.Landlock == 0 || len(r.Own) != 6 || len(r.Faults) != 0 {
		t.Errorf("tier %s, %+v", p.Tier(), r)
	}
	// What the worker says, the kernel says too.
	w, err := p.take(t.Context(), false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard(w)
	proc := fmt.Sprintf("/proc/%d/", w.cmd.Process.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status does not say %q:\n%s", want, status)
		}
	}
	if os.Getuid() != 0 {
		return // only root may look into a process that is not dumpable
	}
	tasks, err := filepath.Glob(proc + "task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Fatal("no threads", err)
	}
	for _, task := range tasks {
		if text, err := os.ReadFile(task); err == nil && !strings.Contains(string(text), "Seccomp:\t2\n") {
			t.Errorf("thread %s has no filter", task)
		}
	}
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, _ := os.Readlink(proc + "fd/" + fd.Name())
		switch {
		case target == "/dev/null", strings.HasPrefix(target, "pipe:"), strings.HasPrefix(target, "socket:"), strings.HasPrefix(target, "anon_inode:"):
		default:
			t.Errorf("descriptor %s is %s", fd.Name(), target)
		}
	}
	if env, err := os.ReadFile(proc + "environ"); err != nil || string(env) != "GOMAXPROCS=1\x00" {
		t.Errorf("environment %q, %v", env, err)
	}
}

func TestWorkerKilledMidScript(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Ready = 1 })
	w, err := p.take(t.Context(), false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard(w)
	host := &fakeHost{tool: func(context.Context, Call) (json.RawMessage, error) {
		_ = w.cmd.Process.Kill()
		<-w.exited
		return json.RawMessage(`1`), nil
	}}
	_, err = newSession(p, w, p.config.Limits, host).run(t.Context(), script(`await tools.a.b(); return 1`))
	if codeOf(err) != CodeFault {
		t.Errorf("got %v", err)
	}
}

func TestIdleWorkerIsReplaced(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Ready = 1 })
	w, err := p.take(t.Context(), false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	// As if it died in a nurse's hands: it is offered to nobody.
	w.kill()
	p.discard(w)
	if _, err := p.Run(t.Context(), "t1", script(`1`), &fakeHost{}); err != nil {
		t.Error(err)
	}
}

func TestFullPoolIsBusy(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Running, c.PerTenant, c.Queue, c.Patience = 2, 1, 1, time.Minute })
	release := make(chan struct{})
	entered := make(chan struct{}, 3)
	host := &fakeHost{tool: func(ctx context.Context, c Call) (json.RawMessage, error) {
		entered <- struct{}{}
		<-release
		return c.Args, nil
	}}
	var running sync.WaitGroup
	start := func() {
		running.Go(func() {
			if _, err := p.Run(t.Context(), "t1", script(`await tools.a.b()`), host); err != nil {
				t.Error(err)
			}
		})
	}
	start()
	<-entered // one runs
	start()
	waitUntil(t, func() bool { p.gate.mu.Lock(); defer p.gate.mu.Unlock(); return len(p.gate.tenants["t1"].waiting) == 1 })

	if _, err := p.Run(t.Context(), "t1", script(`1`), host); problem.CodeOf(err) != problem.Busy || !errors.Is(err, ErrFull) {
		t.Errorf("a third script of the tenant: %v", err)
	}
	if host.begun() != 1 {
		t.Errorf("%d scripts are told to have begun", host.begun())
	}
	if _, err := p.Run(t.Context(), "t2", script(`1`), host); err != nil {
		t.Errorf("another tenant is kept out: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(ctx, "t1", script(`1`), host); err == nil {
		t.Error("a cancelled caller was served")
	}
	close(release)
	running.Wait()
	if len(p.gate.tenants) != 0 {
		t.Errorf("the gate remembers %v", p.gate.tenants)
	}
}

// A script whose start cannot be said does not start, and leaves its place.
func TestStartThatCannotBeSaid(t *testing.T) {
	p := newPool(t)
	why := errors.New("no record")
	host := &fakeHost{begin: func() error { return why }}
	if _, err := p.Run(t.Context(), "t1", of("r1", `await tools.a.b({})`), host); !errors.Is(err, why) || len(host.calls) != 0 {
		t.Errorf("%v, called %v", err, host.calls)
	}
	if s := p.State(); s.Running != 0 || s.Parked != 0 {
		t.Errorf("%+v", s)
	}
}

func TestGateHonoursContextAndPatience(t *testing.T) {
	g := newGate(Config{Running: 1, PerTenant: 1, Queue: 8, Patience: 10 * time.Millisecond})
	leave, err := g.enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.enter(t.Context(), "b"); problem.CodeOf(err) != problem.Busy {
		t.Errorf("without patience: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.enter(ctx, "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	leave()
	if leave, err = g.enter(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	leave()
	if len(g.tenants) != 0 || g.inside != 0 || len(g.turns) != 0 {
		t.Errorf("the gate keeps %+v", g)
	}
}

// TestGateTakesTurns: a tenant with a long queue does not go before another with a short one.
func TestGateTakesTurns(t *testing.T) {
	g := newGate(Config{Running: 1, PerTenant: 1, Queue: 100, Patience: time.Minute})
	leave, err := g.enter(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	var done sync.WaitGroup
	arrive := func(tenant string) {
		before := waiting(g)
		done.Go(func() {
			leave, err := g.enter(t.Context(), tenant)
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, tenant) // one is inside at a time
			leave()
		})
		waitUntil(t, func() bool { return waiting(g) == before+1 })
	}
	for range 3 {
		arrive("loud")
	}
	arrive("quiet")
	leave()
	done.Wait()
	if got := strings.Join(order, " "); got != "loud quiet loud loud" {
		t.Errorf("order %s", got)
	}
}

func TestGateUnderLoad(t *testing.T) {
	g := newGate(Config{Running: 3, PerTenant: 2, Queue: 1000, Patience: time.Minute})
	var inside, most atomic.Int32
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			ctx := t.Context()
			if i%5 == 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Microsecond)
				defer cancel()
			}
			leave, err := g.enter(ctx, fmt.Sprint(i%4))
			if err != nil {
				return
			}
			n := inside.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			inside.Add(-1)
			leave()
		})
	}
	all.Wait()
	if most.Load() > 3 || g.inside != 0 || len(g.tenants) != 0 || len(g.turns) != 0 {
		t.Errorf("at most %d inside; left: %+v", most.Load(), g)
	}
}

func TestCancelEndsTheScriptAndItsCalls(t *testing.T) {
	p := newPool(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := false
	host := &fakeHost{tool: func(ctx context.Context, c Call) (json.RawMessage, error) {
		cancel()
		<-ctx.Done()
		ended = true
		return nil, ctx.Err()
	}}
	_, err := p.Run(ctx, "t1", script(`await tools.a.b()`), host)
	if !errors.Is(err, context.Canceled) || !ended {
		t.Errorf("%v; the call had ended: %v", err, ended)
	}
}

func TestWallClock(t *testing.T) {
	p := newPool(t)
	s := script(`await new Promise(r => setTimeout(r, 1e7))`)
	s.Limits.Wall = 50 * time.Millisecond
	if _, err := p.Run(t.Context(), "t1", s, &fakeHost{}); codeOf(err) != CodeTimeout {
		t.Errorf("a sleeping script: %v", err)
	}
	// Time in calls does not count for Wall, and does for Total.
	slow := &fakeHost{tool: func(ctx context.Context, c Call) (json.RawMessage, error) {
		select {
		case <-time.After(1500 * time.Millisecond): // what a call takes: longer than the script may
		case <-ctx.Done():
		}
		return c.Args, nil
	}}
	s = script(`await tools.a.b(); return 1`)
	s.Limits.Wall = time.Second
	if _, err := p.Run(t.Context(), "t1", s, slow); err != nil {
		t.Errorf("a slow call: %v", err)
	}
	s.Limits.Total = 200 * time.Millisecond
	if _, err := p.Run(t.Context(), "t1", s, slow); codeOf(err) != CodeTimeout {
		t.Errorf("a slow call beyond the total: %v", err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	p := newPool(t)
	running := make(chan struct{})
	host := &fakeHost{tool: func(ctx context.Context, c Call) (json.RawMessage, error) {
		close(running)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	result := make(chan error, 1)
	go func() {
		_, err := p.Run(context.Background(), "t1", script(`await tools.a.b()`), host)
		result <- err
	}()
	<-running
	p.Close()
	if err := <-result; problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("the running script: %v", err)
	}
	if _, err := p.Run(t.Context(), "t1", script(`1`), host); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a script after Close: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	worker := workerkit.BuildWorker(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		config Config
		want   problem.Code
	}{
		{"no path", Config{}, problem.Invalid},
		{"no such program", Config{WorkerPath: worker + "x"}, problem.Unavailable},
		{"another digest", Config{WorkerPath: worker, WorkerDigest: strings.Repeat("00", 32)}, problem.Denied},
		{"not a digest", Config{WorkerPath: worker, WorkerDigest: "abc"}, problem.Invalid},
		{"not a program", Config{WorkerPath: "/etc/passwd"}, problem.Unavailable},
		{"another program", Config{WorkerPath: "/bin/true"}, problem.Unavailable},
		{"negative limit", Config{WorkerPath: self, Limits: Limits{CPU: -1}}, problem.Invalid},
		{"no heap", Config{WorkerPath: self, Limits: Limits{Heap: 1}}, problem.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := New(t.Context(), c.config, quiet())
			if err == nil {
				p.Close()
			}
			if problem.CodeOf(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestTier(t *testing.T) {
	full := Report{Own: namespaceKinds}
	full.Seccomp, full.NoNewPrivs, full.SocketDenied, full.ExecDenied = true, true, true, true
	full.Landlock, full.FilesDenied, full.Rlimits, full.EmptyEnv = 7, true, true, true
	noFiles := full
	noFiles.Landlock = 0
	noNet := full
	noNet.Own = []string{"user", "mnt", "pid"}
	noFilter := full
	noFilter.Seccomp = false
	for _, c := range []struct {
		report Report
		want   Tier
	}{{full, TierJailed}, {noFiles, TierCore}, {noNet, TierWeak}, {noFilter, TierWeak}, {Report{}, TierWeak}} {
		if got := c.report.Tier(); got != c.want {
			t.Errorf("%+v is %s, want %s", c.report, got, c.want)
		}
	}
}

// TestWithoutNamespaces is a host that refuses them, where only AllowWeak goes on.
func TestWithoutNamespaces(t *testing.T) {
	p := newPool(t)
	w, err := startWorker(p.image, p.config.Limits, true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard(w)
	if err := w.awaitHello(); err != nil {
		t.Fatal(err)
	}
	if w.report.Tier() != TierWeak || !w.report.Seccomp || !w.report.FilesDenied {
		t.Errorf("tier %s, %+v", w.report.Tier(), w.report)
	}
}

func TestCloseReleasesWhoWaits(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Running, c.PerTenant, c.Patience = 1, 1, time.Hour })
	leave, err := p.gate.enter(t.Context(), "t1")
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	result := make(chan error, 1)
	go func() {
		_, err := p.Run(context.Background(), "t1", script(`1`), &fakeHost{})
		result <- err
	}()
	waitUntil(t, func() bool { return waiting(p.gate) == 1 })
	p.Close()
	if err := <-result; problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("got %v", err)
	}
}

func waiting(g *gate) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, l := range g.tenants {
		n += len(l.waiting)
	}
	return n
}

// waitUntil polls for a state that has no signal of its own.
func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		if t.Context().Err() != nil {
			t.Fatal("the test ended first")
		}
		time.Sleep(time.Millisecond)
	}
}
