package sandbox

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/workerkit"
)

// TestReported runs the tests that keep faults out of here which others were told of, by the report.
func TestReported(t *testing.T) {
	for _, r := range []struct {
		report string
		test   func(*testing.T)
	}{
		{"dop251/goja#645 one string takes all memory", testOneString},
		{"dop251/goja#94 a source map is not opened", testSourceMaps},
		{"dop251/goja#589 an interrupt is not forgotten", testInterruptStays},
		{"dop251/goja_nodejs#70 a timer clears itself", testTimerClearsItself},
		{"projectdiscovery/nuclei#6865 who waits for a worker has a deadline", testWaitingHasADeadline},
		{"projectdiscovery/nuclei#6877 no call outlives its script", testCallsEndWithTheScript},
		{"dlclark/regexp2#91 a pattern that does not stop is killed", testPatternThatDoesNotStop},
		{"laverdet/isolated-vm#107 one spread takes all memory", testOneSpread},
		{"landlock-lsm/go-landlock#39 Landlock inside a PID namespace", testLandlockInsideNamespace},
	} {
		t.Run(r.report, r.test)
	}
}

// endsAs runs a script beside a neighbour and wants its code to be one of want.
func endsAs(t *testing.T, p *Pool, source string, want ...string) Result {
	t.Helper()
	n := startNeighbour(t, p)
	s := script(source)
	s.Limits = Limits{CPU: 500 * time.Millisecond, Heap: 64 << 20}
	got, words, err := runAndListen(t, p, s, &fakeHost{})
	n.endsWell(t)
	if code := codeOf(err); !slices.Contains(want, code) {
		t.Errorf("%.80s: %v, want one of %q", source, err, want)
	}
	leaksNothing(t, words, got, err)
	return got
}

func testOneString(t *testing.T) {
	p := newPool(t)
	endsAs(t, p, `'x'.repeat(2**40)`, CodeException) // a length that no string has
	endsAs(t, p, `'x'.repeat(2**30)`, CodeMemory)
	// And by ways that nothing but the limits of the process looks at.
	endsAs(t, p, `let s = 'x'; for (;;) s = s.concat(s)`, CodeMemory)
	endsAs(t, p, "let s = 'x'; for (;;) s = `${s}${s}`", CodeMemory)
	endsAs(t, p, `let s = 'xx'; for (;;) s = s.replace(/x/g, '$&$&')`, CodeMemory, CodeCPU)
	endsAs(t, p, `let s = '"'; for (;;) s = JSON.stringify(s)`, CodeMemory, CodeCPU)
}

func testSourceMaps(t *testing.T) {
	p := newPool(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"/dev/urandom", "file:///dev/zero", "file://" + pipe, "/etc/passwd", "data:application/json;base64,e30="} {
		comment := "\n//# sourceMappingURL=" + at
		for _, source := range []string{"return 1" + comment, "const n: number = 1; return n" + comment, "return 1\n//@ sourceMappingURL=" + at} {
			if got := endsAs(t, p, source, ""); string(got.Value) != "1" {
				t.Errorf("%q gives %s", source, got.Value)
			}
		}
		endsAs(t, p, "eval("+string(must(json.Marshal("1"+comment)))+")", CodeException)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// testInterruptStays: after the limit the worker describes rejections and errors, which would run the script again.
func testInterruptStays(t *testing.T) {
	p := newPool(t)
	for _, source := range []string{
		`Promise.reject({ get message() { for (;;) {} }, toString() { for (;;) {} } }); for (;;) {}`,
		`setTimeout(() => { for (;;) {} }, 0); setInterval(() => { for (;;) {} }, 0); await new Promise(() => {})`,
		`const hang = () => { try { for (;;) {} } finally { hang() } }; Promise.resolve().then(hang).then(hang, hang); hang()`,
	} {
		// Its own last word: neither the clock of the pool nor the kernel had to end it.
		if got := endsAs(t, p, source, CodeCPU); got.Stats.CPU == 0 {
			t.Errorf("%s: the worker did not stop by itself", source)
		}
	}
}

func testTimerClearsItself(t *testing.T) {
	p := newPool(t)
	for source, want := range map[string]string{
		`await new Promise(r => { const id = setTimeout(() => { clearTimeout(id); r() }, 1) }); await new Promise(r => setTimeout(r, 1)); return 1`: `1`,
		`let n = 0; await new Promise(r => { const id = setInterval(() => { clearInterval(id); clearInterval(id); n++; r() }, 1) }); return n`:      `1`,
		`const id = setTimeout(() => {}, 0); await new Promise(r => setTimeout(r, 1)); clearTimeout(id); return 1`:                                  `1`,
	} {
		if got := endsAs(t, p, source, ""); string(got.Value) != want {
			t.Errorf("%s gives %s", source, got.Value)
		}
	}
	// With its timer gone there is nothing to wait for, and that is said at once.
	endsAs(t, p, `await new Promise(() => { const id = setTimeout(() => clearTimeout(id), 1) })`, CodeDeadlock)
}

func testWaitingHasADeadline(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Running, c.PerTenant, c.Patience = 1, 1, time.Hour })
	first := startNeighbour(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	late := &fakeHost{}
	if _, err := p.Run(ctx, "t1", script(`await tools.a.b()`), late); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a place: %v", err)
	}
	first.endsWell(t)
	if _, err := p.Run(t.Context(), "t1", script(`1`), &fakeHost{}); err != nil {
		t.Errorf("the place is lost: %v", err)
	}
	if len(late.calls) != 0 {
		t.Error("a script ran after its caller had gone")
	}

	// And for the worker itself, when none can be made.
	stuck := &Pool{ready: make(chan *worker), hunger: make(chan struct{})}
	if _, err := stuck.take(ctx, false, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a worker: %v", err)
	}
	if _, err := stuck.take(t.Context(), false, time.Millisecond); problem.CodeOf(err) != problem.Busy {
		t.Errorf("waiting for a worker: %v", err)
	}
}

// testCallsEndWithTheScript: however a script ends, what the host does for it ends first.
func testCallsEndWithTheScript(t *testing.T) {
	p := newPool(t)
	for name, c := range map[string]struct {
		source string
		change func(*Script)
	}{
		"value":     {`return 1`, func(s *Script) { s.Limits.Drain = time.Millisecond }},
		"exception": {`throw new Error('x')`, func(s *Script) { s.Limits.Drain = time.Millisecond }},
		"cpu_limit": {`for (;;) {}`, func(s *Script) { s.Limits.CPU = 100 * time.Millisecond }},
		"timeout":   {`await new Promise(() => {})`, func(s *Script) { s.Limits.Total = 200 * time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			var began sync.WaitGroup
			began.Add(2)
			var open atomic.Int32
			wait := func(ctx context.Context) error {
				open.Add(1)
				began.Done()
				<-ctx.Done()
				open.Add(-1)
				return ctx.Err()
			}
			host := &fakeHost{
				tool: func(ctx context.Context, c Call) (json.RawMessage, error) {
					if c.Tool == "gh.list" { // answered when the other two are on their way
						began.Wait()
						return nil, nil
					}
					return nil, wait(ctx)
				},
				fetch: func(ctx context.Context, _ Request) (Response, error) { return Response{}, wait(ctx) },
			}
			s := script(`tools.a.b(); fetch('https://a.test/'); await tools.gh.list(); ` + c.source)
			c.change(&s)
			_, err := p.Run(t.Context(), "t1", s, host)
			if n := open.Load(); n != 0 {
				t.Errorf("%v; %d calls still go on", err, n)
			}
			want := name
			if name == "value" {
				want = ""
			}
			if code := codeOf(err); code != want {
				t.Errorf("ends as %q (%v)", code, err)
			}
		})
	}
}

func testPatternThatDoesNotStop(t *testing.T) {
	p := newPool(t)
	// The time limit of the matcher is looked at by the matcher. Here the watcher ends the process from beside it.
	endsAs(t, p, `/^(?=a)(a+)+$/.test('a'.repeat(40) + '!')`, CodeCPU)
	endsAs(t, p, `/(?=.*)(.*)*(.*)*[^a]$/s.test('a'.repeat(20000))`, CodeCPU)
	// And here there is no watcher, as after an escape: the kernel has a limit of its own.
	s := script("spin")
	s.Limits.CPU = 500 * time.Millisecond
	_, err := newFakePool(t).Run(t.Context(), "t1", s, &fakeHost{})
	if codeOf(err) != CodeCPU {
		t.Errorf("a worker that spins: %v", err)
	}
}

func testOneSpread(t *testing.T) {
	p := newPool(t)
	endsAs(t, p, `[...'.'.repeat(1e9)]`, CodeMemory)
	endsAs(t, p, `[...'.'.repeat(1e8)]`, CodeMemory, CodeCPU)
	endsAs(t, p, `Array.from('.'.repeat(1e8))`, CodeMemory, CodeCPU)
	endsAs(t, p, `'.'.repeat(1e8).split('')`, CodeMemory, CodeCPU)
}

// testLandlockInsideNamespace: with cgo, closing the jail would hang there, so nothing may link it in.
func testLandlockInsideNamespace(t *testing.T) {
	info, err := buildinfo.ReadFile(workerkit.BuildWorker(t))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "CGO_ENABLED" && s.Value == "0" }) {
		t.Errorf("the worker is built with %v", info.Settings)
	}
	r := newPool(t).Isolation()
	if !slices.Contains(r.Own, "pid") || r.Landlock == 0 || !r.FilesDenied {
		t.Errorf("%+v", r)
	}
}
