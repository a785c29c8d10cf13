package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// of gives a script of a run.
func of(run, source string) Script {
	s := script(source)
	s.Run = run
	return s
}

// prepared counts the workers that may be taken.
func prepared(p *Pool) (n int) {
	p.lot.mu.Lock()
	defer p.lot.mu.Unlock()
	for _, k := range p.lot.parked {
		if k.ready {
			n++
		}
	}
	return n
}

// parkedPIDs are the processes in the lot, the one that came first, first.
func parkedPIDs(p *Pool) (pids []int) {
	p.lot.mu.Lock()
	defer p.lot.mu.Unlock()
	for _, k := range p.lot.parked {
		pids = append(pids, k.worker.cmd.Process.Pid)
	}
	return pids
}

// runs runs a script and waits until its worker is parked and ready, beside others.
func runs(t *testing.T, p *Pool, tenant string, s Script, others int) Result {
	t.Helper()
	got, err := p.Run(t.Context(), tenant, s, &fakeHost{})
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return prepared(p) == others+1 })
	return got
}

func TestLaterScriptsOfARunAreWarm(t *testing.T) {
	p := newPool(t)
	if got := runs(t, p, "t1", of("r1", `return 1`), 0); got.Stats.Warm {
		t.Error("the first script was warm")
	}
	first := parkedPIDs(p)
	for range 3 {
		if got := runs(t, p, "t1", of("r1", `return await tools.a.b({x: 1})`), 0); !got.Stats.Warm || string(got.Value) != `{"x":1}` {
			t.Errorf("warm %v, value %s", got.Stats.Warm, got.Value)
		}
	}
	if last := parkedPIDs(p); !slices.Equal(first, last) {
		t.Errorf("processes %v, then %v", first, last)
	}
	// An error of the script's own is an end like any other.
	if _, err := p.Run(t.Context(), "t1", of("r1", `throw new TypeError('x')`), &fakeHost{}); codeOf(err) != CodeException {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return prepared(p) == 1 })
	if _, err := p.Run(t.Context(), "t1", of("r1", `retrun 1`), &fakeHost{}); codeOf(err) != CodeSyntax {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return prepared(p) == 1 })
	if got := runs(t, p, "t1", of("r1", `return 2`), 0); !got.Stats.Warm {
		t.Error("after an error the worker was not kept")
	}
}

// A worker is its run's: neither another run, nor the run of that name of another tenant, nor a script of none has it.
func TestParkedWorkerIsNeverAnothers(t *testing.T) {
	p := newPool(t)
	runs(t, p, "t1", of("r1", `return 1`), 0)
	for i, other := range []struct{ tenant, run string }{{"t1", "r2"}, {"t2", "r1"}, {"t1r", "1"}} {
		if got := runs(t, p, other.tenant, of(other.run, `return 1`), i+1); got.Stats.Warm {
			t.Errorf("%v had the worker of another", other)
		}
	}
	if got, err := p.Run(t.Context(), "t1", script(`return 1`), &fakeHost{}); err != nil || got.Stats.Warm {
		t.Errorf("a script of no run: warm %v, %v", got.Stats.Warm, err)
	}
	if n := p.State().Parked; n != 4 {
		t.Errorf("%d workers are parked", n)
	}
}

// The first scripts do what they can to be there for the next one. Each probe is the second script of its run, and of a run that
// had no first: it has to give the same.
func TestSecondScriptSeesNothingOfTheFirst(t *testing.T) {
	p := newPool(t)
	const calls = `const seen = []; for (const v of [tools.a.b({x: 1}), tools.a.b({x: 2})]) seen.push(await v); return seen`
	for name, c := range map[string]struct{ first, probe string }{
		"globals": {`globalThis.leak = 1; var leak2 = 2; leak3 = 3; Object.defineProperty(globalThis, 'leak4', {value: 4}); return 1`,
			`return [typeof leak, typeof leak2, typeof leak3, typeof leak4, Object.getOwnPropertyNames(globalThis).sort()]`},
		"prototypes": {`Array.prototype.push = function () { return 'mine' }; Array.prototype.map = () => 'mine'; Object.prototype.leak = 'mine'; String.prototype.trim = () => 'mine'; Promise.prototype.then = () => 'mine'; return 1`,
			`const a = []; return [a.push(1), a.map(x => x), {}.leak, ' x '.trim(), await Promise.resolve(2)]`},
		"built-ins": {`JSON.stringify = () => '"mine"'; JSON.parse = () => 'mine'; Math.random = () => 0.5; Date.now = () => 42; Object.keys = () => ['mine']; globalThis.Promise = class {}; globalThis.Map = null; return 1`,
			`return [JSON.stringify({a: 1}), JSON.parse('{"b":2}'), Math.random(), Date.now(), Object.keys({k: 1}), typeof Promise.all, new Map([[1, 2]]).get(1)]`},
		"frozen": {`try { Object.freeze(Array.prototype) } catch {} for (const n of Object.getOwnPropertyNames(globalThis)) try { Object.freeze(globalThis[n]); Object.freeze(globalThis[n].prototype) } catch {} Object.freeze(globalThis); return 1`,
			`Array.prototype.own = 1; globalThis.own = 2; Map.prototype.own = 3; return [Object.isFrozen(globalThis), [].own, own, new Map().own]`},
		"regexps": {`const r = /a/g; r.lastIndex = 3; RegExp.prototype.exec = () => ['mine']; 'zzsecretzz'.match(/(secret)/); return RegExp.$1`,
			`return [/a/g.lastIndex, 'xay'.replace(/a/, 'b'), RegExp.$1, RegExp.lastMatch, /(b)/.exec('abc')]`},
		"error hooks": {`Error.prepareStackTrace = () => 'mine'; Error.stackTraceLimit = 0; Error.prototype.toString = () => 'mine'; Error.captureStackTrace = () => { throw 1 }; return 1`,
			`return [typeof Error.prepareStackTrace, Error.stackTraceLimit, String(new Error('x')), new Error('x').stack]`},
		"tools": {`const t = tools, ab = tools.a.b; try { tools.a.b = () => 'mine' } catch {} try { globalThis.tools = {a: {b: () => 'mine'}} } catch {} globalThis.kept = ab; return 1`,
			calls},
		"fetch and console": {`globalThis.fetch = () => 'mine'; console.log = () => { throw 1 }; crypto.randomUUID = () => 'mine'; performance.now = () => 42; return 1`,
			`console.log('x'); return [await fetch('https://a.test/').catch((e) => e.code), crypto.randomUUID(), performance.now()]`},
		"symbols": {`Symbol.for('shared').x = 1; globalThis[Symbol.for('shared')] = 1; return Symbol.for('shared').description`,
			`return [globalThis[Symbol.for('shared')], Symbol.for('other').description]`},
		"random": {`for (let i = 0; i < 100; i++) Math.random(); return crypto.randomUUID()`,
			`return [Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(4))]]`},
		"clock": {`await new Promise((r) => setTimeout(r, 20)); return performance.now()`,
			`return [Date.now(), new Date().toISOString(), performance.now()]`},
		"timers": {`for (let i = 0; i < 50; i++) { setInterval(() => { console.log('mine'); tools.a.b({mine: true}) }, 1); setTimeout(() => { throw new Error('mine') }, 1) } return 1`,
			`await new Promise((r) => setTimeout(r, 20)); return setTimeout(() => {}, 1)`},
		"promises": {`globalThis.p = new Promise(() => {}); for (let i = 0; i < 50; i++) Promise.reject(new Error('mine')).catch((e) => new Promise(() => {})); return 1`,
			`return await Promise.allSettled([Promise.resolve(1), Promise.reject(2)])`},
		"rejections":    {`Promise.reject(new Error('mine')); return 1`, `return 1`},
		"calls counted": {`for (let i = 0; i < 90; i++) await tools.a.b({i}); return 1`, `let n = 0; for (let i = 0; i < 90; i++) n += (await tools.a.b({i})).i; return n`},
		"logs counted":  {`for (let i = 0; i < 2000; i++) console.log('x'.repeat(100)); return 1`, `console.log('mine'); return 1`},
		"memory":        {`globalThis.big = 'x'.repeat(5e6); return big.length`, `return 'y'.repeat(1e6).length`},
		"depth":         {`let d = 0; const f = () => { d++; if (d < 300) f() }; f(); return d`, `let d = 0; const f = () => { d++; if (d < 300) f() }; f(); return d`},
		"templates":     {"const t = (s) => s; const a = t`x`; globalThis.a = a; return 1", "const t = (s) => s; return [t`x`.raw, Object.isFrozen(t`x`)]"},
		"uncaught":      {`throw Object.assign(new Error('mine'), {code: 'mine'})`, `return await tools.a.b({x: 1})`},
	} {
		t.Run(name, func(t *testing.T) {
			fresh, want := &fakeHost{}, Result{}
			want, err := p.Run(t.Context(), "t1", script(c.probe), fresh)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = p.Run(t.Context(), "t1", of(name, c.first), &fakeHost{}) // its value, or its own error
			waitUntil(t, func() bool { return prepared(p) == 1 })
			warm := &fakeHost{}
			got, err := p.Run(t.Context(), "t1", of(name, c.probe), warm)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Stats.Warm {
				t.Error("it was not warm: this test shows nothing")
			}
			if string(got.Value) != string(want.Value) || !slices.Equal(got.Warnings, want.Warnings) || !slices.Equal(got.Logs, want.Logs) {
				t.Errorf("after another script %s %q %v\nand alone        %s %q %v", got.Value, got.Warnings, got.Logs, want.Value, want.Warnings, want.Logs)
			}
			if a, b := asked(warm), asked(fresh); a != b {
				t.Errorf("the host was asked for %.300s\nand alone for         %.300s", a, b)
			}
			if strings.Contains(string(got.Value), "mine") {
				t.Errorf("value %s", got.Value)
			}
			p.RunEnded("t1", name)
		})
	}
}

// asked is what a host was asked for, in the order of issue.
func asked(h *fakeHost) string {
	slices.SortFunc(h.calls, func(a, b Call) int { return a.Seq - b.Seq })
	return fmt.Sprintf("%+v %+v", h.calls, h.fetches)
}

// What a script may not leave behind ends its worker.
func TestWorkerIsNotKept(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Limits.CPU, c.Limits.Drain = 500*time.Millisecond, 50*time.Millisecond })
	stuck := func(ctx context.Context, _ Call) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }
	for name, c := range map[string]struct {
		source, code string
		tool         func(context.Context, Call) (json.RawMessage, error)
		total        time.Duration
	}{
		"processor":            {source: `for(;;){}`, code: CodeCPU},
		"native code":          {source: `return /^(?=a)(a+)+$/.test('a'.repeat(40) + '!')`, code: CodeCPU},
		"microtasks":           {source: `const again = () => Promise.resolve().then(again); again(); return 1`, code: CodeCPU},
		"memory":               {source: `const a = []; for(;;) a.push('x'.repeat(1e6) + a.length)`, code: CodeMemory},
		"stack":                {source: `function f() { return f() + 1 } f()`, code: CodeStack},
		"deadlock":             {source: `await new Promise(() => {})`, code: CodeDeadlock},
		"time":                 {source: `await tools.a.b({})`, code: CodeTimeout, tool: stuck, total: 100 * time.Millisecond},
		"a value too large":    {source: `return 'x'.repeat(2e6)`, code: CodeOutputTooLarge},
		"an answer that comes": {source: `tools.a.b({}); return 1`, tool: stuck}, // after the end
		"an abort":             {source: `await tools.a.b({})`, code: "held", tool: func(context.Context, Call) (json.RawMessage, error) { return nil, Abort(&ScriptError{Code: "held"}) }},
		"a big heap":           {source: `const a = []; for (let i = 0; i < 60; i++) a.push(new Uint8Array(1e6).fill(1)); return a.length`},
	} {
		t.Run(name, func(t *testing.T) {
			s := of(name, c.source)
			s.Limits.Total = c.total
			_, err := p.Run(t.Context(), "t1", s, &fakeHost{tool: c.tool})
			if code := codeOf(err); err != nil && code != c.code || err == nil && c.code != "" {
				t.Errorf("%q (%v)", code, err)
			}
			waitUntil(t, func() bool { return p.State().Parked == 0 })
			got, err := p.Run(t.Context(), "t1", of(name, `return 1`), &fakeHost{})
			if err != nil || got.Stats.Warm {
				t.Errorf("the next script: warm %v, %v", got.Stats.Warm, err)
			}
			p.RunEnded("t1", name)
		})
	}
}

// The kernel's limit is the process's: a worker is given up before the time of its first scripts is a later one's.
func TestWorkerIsRetiredBeforeItsTimeIsUp(t *testing.T) {
	p := newPool(t)
	busy := of("r1", `const t = 8e6; let n = 0; for (let i = 0; i < t; i++) n += i; return n`)
	var total time.Duration
	for fresh := 0; fresh < 2; { // the second comes, or the kernel ends the first under a script
		got, err := p.Run(t.Context(), "t1", busy, &fakeHost{})
		if err != nil {
			t.Fatalf("after %s of processor time: %v", total, err)
		}
		if !got.Stats.Warm {
			fresh, total = fresh+1, 0
		}
		total += got.Stats.CPU
		waitUntil(t, func() bool { return prepared(p) == p.State().Parked })
	}
}

func TestParkedWorkersAreBounded(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Running, c.PerTenant, c.Parked = 8, 8, 3 })
	for i := range 3 {
		runs(t, p, "loud", of(fmt.Sprint(i), `return 1`), i)
	}
	all := parkedPIDs(p)
	runs(t, p, "quiet", of("q", `return 1`), 2)
	if got := parkedPIDs(p); len(got) != 3 || !slices.Equal(got[:2], all[1:]) {
		t.Errorf("%v, then %v: the oldest of the tenant with the most has to go", all, got)
	}
	if got := runs(t, p, "quiet", of("q", `return 1`), 2); !got.Stats.Warm {
		t.Error("the quiet tenant's worker was given up")
	}
	p.RunEnded("loud", "1")
	if n := p.State().Parked; n != 2 {
		t.Errorf("%d are left after the end of a run", n)
	}
}

// Parked workers stand on the places of running scripts, and go when those come.
func TestParkedWorkersMakeRoom(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Running, c.PerTenant = 2, 2 })
	runs(t, p, "t1", of("r1", `return 1`), 0)
	runs(t, p, "t1", of("r2", `return 1`), 1)
	release, entered := make(chan struct{}), make(chan struct{})
	host := &fakeHost{tool: func(_ context.Context, c Call) (json.RawMessage, error) {
		entered <- struct{}{}
		<-release
		return c.Args, nil
	}}
	var running sync.WaitGroup
	for left := range 2 {
		running.Go(func() {
			if _, err := p.Run(t.Context(), "t1", script(`await tools.a.b({})`), host); err != nil {
				t.Error(err)
			}
		})
		<-entered
		if n := p.State().Parked; n != 1-left {
			t.Errorf("with %d running, %d are parked", left+1, n)
		}
	}
	close(release)
	running.Wait()
	// With one place there is still a warm script: its worker stands on the place that it runs on.
	one := newPool(t, func(c *Config) { c.Running = 1 })
	runs(t, one, "t1", of("r1", `return 1`), 0)
	if got := runs(t, one, "t1", of("r1", `return 1`), 0); !got.Stats.Warm {
		t.Error("not warm")
	}
}

func TestIdleWorkerEnds(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Idle = time.Millisecond })
	if _, err := p.Run(t.Context(), "t1", of("r1", `return 1`), &fakeHost{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return p.State().Parked == 0 })
	none := newPool(t, func(c *Config) { c.Idle = -1 })
	if _, err := none.Run(t.Context(), "t1", of("r1", `return 1`), &fakeHost{}); err != nil || none.State().Parked != 0 {
		t.Errorf("%d parked, %v", none.State().Parked, err)
	}
}

func TestDeadParkedWorkerIsNotGiven(t *testing.T) {
	p := newPool(t)
	runs(t, p, "t1", of("r1", `return 1`), 0)
	p.lot.mu.Lock()
	k := p.lot.parked[0]
	p.lot.mu.Unlock()
	_ = k.worker.cmd.Process.Kill()
	<-k.worker.exited
	got, err := p.Run(t.Context(), "t1", of("r1", `return 1`), &fakeHost{})
	if err != nil || got.Stats.Warm {
		t.Errorf("warm %v, %v", got.Stats.Warm, err)
	}
}

// Workers that are not the engine: what they say after their last word ends them, and none reaches another script.
func TestHostileParkedWorkers(t *testing.T) {
	p := newFakePool(t)
	for _, mode := range []string{"done, call", "done, log", "done, done", "done, garbage", "done, wrong count", "done, much time", "done, less than no time",
		"done, much memory", "done, long ready", "done, exit", "done, ready, call", "done, ready, exit", "done with a call open"} {
		t.Run(mode, func(t *testing.T) {
			host := &fakeHost{tool: func(ctx context.Context, _ Call) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }}
			if _, err := p.Run(t.Context(), "t1", of(mode, mode), host); err != nil {
				t.Fatal(err)
			}
			// Those that get as far as the lot are found out as they are taken.
			waitUntil(t, func() bool { return p.State().Parked == prepared(p) })
			if spoke := strings.HasPrefix(mode, "done, ready, "); spoke && prepared(p) == 1 {
				p.lot.mu.Lock()
				w := p.lot.parked[0].worker
				p.lot.mu.Unlock()
				waitUntil(t, func() bool { return !w.quiet() })
			} else if !spoke && prepared(p) != 0 {
				t.Error("it was kept")
			}
			after := &fakeHost{}
			got, err := p.Run(t.Context(), "t1", of(mode, "done, log"), after)
			if err != nil || got.Stats.Warm || len(after.calls) != 0 || len(got.Logs) != 0 {
				t.Errorf("warm %v, %v; calls %v", got.Stats.Warm, err, after.calls)
			}
			waitUntil(t, func() bool { return p.State().Parked == 0 })
		})
	}
	// One that takes no replies is not waited for.
	host := &fakeHost{tool: bigAnswer}
	s := of("deaf", "deaf, done")
	if _, err := p.Run(t.Context(), "t1", s, host); err != nil && codeOf(err) != CodeFault {
		t.Error(err)
	}
	waitUntil(t, func() bool { return p.State().Parked == 0 })
}

func TestScriptsOfOneRunAtOnce(t *testing.T) {
	p := newPool(t, func(c *Config) { c.Running, c.PerTenant = 4, 4 })
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 8 {
				got, err := p.Run(t.Context(), "t1", of("r1", fmt.Sprintf(`globalThis.own ??= %d; return (await tools.a.b({x: own})).x`, i)), &fakeHost{})
				if err != nil || string(got.Value) != fmt.Sprint(i) {
					t.Errorf("%s, %v", got.Value, err)
				}
			}
		})
	}
	all.Wait()
	p.RunEnded("t1", "r1")
	if n := p.State().Parked; n != 0 {
		t.Errorf("%d parked", n)
	}
}
