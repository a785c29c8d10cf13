package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHostile runs what has broken sandboxes like this one. Names with a number are cases of the list that the engine was
// chosen by. Each runs while a neighbour's script does, which goes on as if nothing were.
func TestHostile(t *testing.T) {
	p := newPool(t)
	for _, c := range []struct {
		name, source string
		want         []string // codes that are right; "" is success
		value        string   // the value of a success, or how the error's text begins after its code
	}{
		{"01_loop", `for(;;){}`, []string{CodeCPU}, ""},
		{"02_loop_in_finally", `for(;;){try{for(;;);}finally{continue}}`, []string{CodeCPU}, ""},
		{"loop of microtasks", `(function f(){Promise.resolve().then(f)})(); await new Promise(()=>{})`, []string{CodeCPU, CodeMemory}, ""},
		{"04_endless_spread", `[...function*(){for(;;)yield 1}()]`, []string{CodeMemory, CodeCPU}, ""},
		{"05_repeat_1e9", `'x'.repeat(1e9)`, []string{CodeMemory}, ""},
		{"06_repeat_2^62", `'xx'.repeat(2**62)`, []string{CodeException}, "RangeError: Invalid string length"},
		{"impossible repeat, caught", `try { 'xx'.repeat(2**62) } catch (e) { return e.name }`, []string{""}, `"RangeError"`},
		{"impossible pad", `try { 'xx'.padEnd(2**62) } catch (e) { return e.name }`, []string{""}, `"RangeError"`},
		{"08_array_buffer_4e9", `new ArrayBuffer(4e9)`, []string{CodeMemory}, ""},
		{"typed array", `new Float64Array(2**40)`, []string{CodeMemory, CodeException}, ""},
		{"09_sparse_array_1e9", `new Array(1e9).length`, []string{""}, `1000000000`},
		{"10_filled_array_1e8", `new Array(1e8).fill(0)`, []string{CodeMemory, CodeCPU}, ""},
		{"11_doubling", `for(var x='X',a=[];;a.push(x+=x));`, []string{CodeMemory}, ""},
		{"13_join_1e9", `Array(1e9).join('x')`, []string{CodeMemory, CodeCPU}, ""},
		{"many objects", `const a=[]; for(;;) a.push({a:[1,2,3]})`, []string{CodeMemory, CodeCPU}, ""},
		{"map", `const m=new Map(); for(let i=0;;i++) m.set(i,{})`, []string{CodeMemory, CodeCPU}, ""},
		{"14_backtracking", `/^(?=a)(a+)+$/.test('a'.repeat(40)+'!')`, []string{CodeCPU}, ""},
		{"15_linear_regexp", `/^(a+)+$/.test('a'.repeat(40)+'!')`, []string{""}, `false`},
		{"17_nested_json_5e6", `JSON.parse('['.repeat(5e6))`, []string{CodeStack}, ""},
		{"nested stringify", `let o={}; for(let i=0;i<1e6;i++) o={o}; JSON.stringify(o)`, []string{CodeStack, CodeMemory, CodeCPU, CodeException}, ""},
		{"19_nested_source_60k", strings.Repeat("(", 60_000), []string{CodeSyntax, CodeStack}, ""},
		{"nested arrays in source", strings.Repeat("[", 60_000), []string{CodeSyntax, CodeStack, CodeMemory}, ""},
		{"nested templates", strings.Repeat("`${", 20_000), []string{CodeSyntax, CodeStack, CodeMemory, CodeCPU}, ""},
		{"nested unary", strings.Repeat("!", 60_000) + "1", []string{CodeSyntax, CodeStack, CodeMemory, ""}, "true"},
		{"19_nested_source_too_large", strings.Repeat("(", 70_000), []string{"too_large"}, ""},
		{"20_recursion", `function f(){return f()+1}f()`, []string{CodeStack}, "RangeError: calls are nested more than 512 deep"},
		{"recursion through a getter", `const o={get a(){return this.a}}; o.a`, []string{CodeStack}, ""},
		{"recursion through toString", `const o={toString(){return ''+this}}; ''+o`, []string{CodeStack}, ""},
		{"recursion in a microtask", `await null; function f(){return f()+1} f()`, []string{CodeStack}, ""},
		{"22_source_map", "return 1 //# sourceMappingURL=file:///dev/zero", []string{""}, `1`},
		{"source map in a pattern", "return 1\n//# sourceMappingURL=file:///etc/passwd", []string{""}, `1`},
		{"23_constructor", `this.constructor.constructor('return process')()`, []string{CodeException}, "EvalError: "},
		{"function constructors", `
			const out = [];
			for (const f of [function(){}, async function(){}, function*(){}, () => {}, class {}, tools.a.b, console.log]) {
				try { f.constructor('return 1')(); out.push('made') } catch (e) { out.push(e.name) }
				try { new f.constructor('return 1'); out.push('made') } catch (e) { out.push(e.name) }
			}
			try { Object.getPrototypeOf(Object.getPrototypeOf(async function(){}).constructor).constructor('1')(); out.push('reached') } catch (e) { out.push(e.name) }
			try { eval('1'); out.push('made') } catch (e) { out.push(e.name) }
			try { (0, eval)('1'); out.push('made') } catch (e) { out.push(e.name) }
			try { setTimeout('1'); out.push('made') } catch (e) { out.push(e.name) }
			return out.filter(n => n !== 'EvalError' && n !== 'TypeError')`, []string{""}, `[]`},
		{"24_require", `require('/etc/passwd')`, []string{CodeException}, "ReferenceError: "},
		{"process", `typeof process + typeof require + typeof module + typeof global`, []string{""}, `"undefinedundefinedundefinedundefined"`},
		{"25_patched_json", `JSON.stringify=()=>'"pwn"'; JSON.parse=()=>'pwn'; return tools.a.b({real: 1})`, []string{""}, `{"real":1}`},
		{"patched everything", `
			Promise.prototype.then = () => { throw 1 }; Array.prototype[Symbol.iterator] = () => { throw 2 };
			Reflect.apply = Object.defineProperty = WeakMap.prototype.get = () => { throw 3 };
			return await tools.a.b({real: 1})`, []string{""}, `{"real":1}`},
		{"patched for the preludes", `
			Array.prototype.includes = () => true; Array.prototype[Symbol.iterator] = function* () { yield {}; yield 'x' }; Array.prototype.filter = () => [{}];
			WeakMap.prototype.get = () => ({secret: {}, name: 'x', usages: ['sign']}); String.prototype.replace = () => ({}); Map.prototype.set = () => {};
			const out = [], attempt = async f => { try { await f() } catch (e) { out.push(e instanceof Error) } };
			await attempt(() => crypto.subtle.digest('NOPE', new Uint8Array(1))); await attempt(() => crypto.subtle.sign('HMAC', {}, new Uint8Array(1)));
			await attempt(() => crypto.getRandomValues(new Float64Array(1))); await attempt(() => new TextDecoder().decode(new Uint8Array(3)));
			await attempt(() => new TextEncoder().encodeInto('x', new Uint8Array(1))); await attempt(() => new URL('http://a/?b').searchParams.set('a', 'b'));
			await attempt(() => (1234.5).toLocaleString()); await attempt(() => new Date().toLocaleString()); await attempt(() => structuredClone(new Map([[1, 2]])));
			await attempt(() => JSON.stringify([1], null, 2)); await attempt(() => 'é'.replace(/\p{L}/u, 'x')); await attempt(() => [1].values().map(x => x).toArray());
			return JSON.stringify(out.map(Boolean)).length > 0`, []string{""}, `true`},
		{"nested indent", `let a = []; for (let i = 0; i < 9000; i++) a = [a]; return JSON.stringify(a, null, 10).length`, []string{CodeMemory, CodeCPU, CodeStack}, ""},
		{"long address", `new URL('http://' + 'a:'.repeat(3e6) + '@b')`, []string{CodeMemory, CodeCPU}, ""},
		{"long decoding", `const d = new TextDecoder(); const b = new Uint8Array(1e5).fill(0xe2); for (;;) d.decode(b, {stream: true})`, []string{CodeCPU, CodeMemory}, ""},
		{"endless iterator", `function* n() { for (;;) yield 1 } n().map(x => x).filter(x => !x).toArray()`, []string{CodeCPU}, ""},
		{"endless sort", `[3, 1, 2].sort(() => { for (;;); })`, []string{CodeCPU}, ""},
		{"backtracking, made", `new RegExp('(?<n>(a+)+)$', 'u').test('a'.repeat(40) + '!')`, []string{CodeCPU}, ""},
		{"27_never_settled", `await new Promise(()=>{})`, []string{CodeDeadlock}, ""},
		{"28_property_class", `/^\p{L}+$/u.test('é')`, []string{""}, `true`},
		{"property class, made", `[new RegExp('^\\p{L}+$', 'u').test('é'), RegExp('\\P{L}', 'u').test('é'), /\p{Script=Greek}/u.test('α'), /[\p{Lu}\d]/u.test('x')]`, []string{""}, `[true,false,true,false]`},
		{"property class without u", `[/\p{L}/.test('a'), /\p{L}/.test('p{L}')]`, []string{""}, `[false,true]`},
		{"property class from a regexp", `new RegExp(/\p{L}/, 'u').test('é')`, []string{""}, `true`},
		{"unknown property", `/\p{NoSuchThing}/u.test('a')`, []string{CodeRegexp}, ""},
		{"hung getter", `throw { get message() { for(;;){} }, toString() { for(;;){} } }`, []string{CodeCPU}, ""},
		{"hung error", `const e = new Error('x'); Object.defineProperty(e, 'message', {get() { for(;;){} }}); throw e`, []string{CodeCPU}, ""},
		{"hung toJSON", `return {toJSON() { for(;;){} }}`, []string{CodeCPU}, ""},
		{"throwing getters", `const e = new Error('x'); Object.defineProperty(e, 'name', {get() { throw 1 }}); throw e`, []string{CodeException}, ""},
		{"thrown proxy", `throw new Proxy(new Error('x'), {get() { throw 1 }, getPrototypeOf() { throw 2 }})`, []string{CodeException}, ""},
		{"thrown null", `throw null`, []string{CodeException}, ""},
		{"thrown symbol", `throw Symbol('x')`, []string{CodeException}, ""},
		{"thenable value", `return {then(r) { r(r) }}`, []string{"", CodeException}, "null"},
		{"cyclic value", `const a = {}; a.a = a; return a`, []string{CodeException}, ""},
		{"bigint value", `return 1n`, []string{CodeException}, ""},
		{"value too large", `return 'x'.repeat(2e6)`, []string{CodeOutputTooLarge}, ""},
		{"value nested too deeply", `let a = []; for (let i = 0; i < 10200; i++) a = [a]; return a`, []string{CodeOutputTooLarge, CodeCPU}, ""},
		{"arguments nested too deeply", `let a = []; for (let i = 0; i < 10200; i++) a = [a]; await tools.a.b({a})`, []string{CodeArgsTooLarge, CodeCPU}, ""},
		{"forged code", `const e = new ToolError('x'); e.code = 'sandbox_fault'; throw e`, []string{CodeException}, ""},
		{"closed wrapper", `}); for(;;){} (async function(){`, []string{CodeSyntax}, ""},
		{"closed wrapper, typed", "}); let x: number = 1; (async function(){", []string{CodeSyntax}, ""},
		{"half a surrogate pair", `return tools.a.b({s: '\ud800'})`, []string{""}, `{"s":"�"}`},
		{"timers", `for (let i = 0; i < 1000; i++) setTimeout(() => {}, 1e6)`, []string{CodeException}, ""},
		{"too many calls", `for (let i = 0; i < 1000; i++) await tools.a.b()`, []string{CodeTooManyCalls}, ""},
		{"arguments too large", `await tools.a.b({x: 'x'.repeat(3e5)})`, []string{CodeArgsTooLarge}, ""},
		{"unknown tool", `await tools.a.c()`, []string{CodeToolUnknown}, ""},
		{"log flood", `for (let i = 0; i < 1e5; i++) console.log('x'.repeat(100)); return 1`, []string{""}, `1`},
		{"log of a line", `console.log('x'.repeat(5e6)); return 1`, []string{""}, `1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			neighbour := startNeighbour(t, p)
			s := script(c.source)
			s.Limits = Limits{CPU: 500 * time.Millisecond, Heap: 64 << 20}
			host := &fakeHost{}
			got, words, err := runAndListen(t, p, s, host)
			neighbour.endsWell(t)

			code := codeOf(err)
			if !slices.Contains(c.want, code) {
				t.Fatalf("code %q (%v), want one of %q; value %.100s", code, err, c.want, got.Value)
			}
			if code == "" && string(got.Value) != c.value {
				t.Errorf("value %s, want %s", got.Value, c.value)
			}
			if code != "" && !strings.HasPrefix(err.Error(), code+": "+c.value) {
				t.Errorf("error %v, want one that begins with %q", err, c.value)
			}
			for _, call := range host.calls {
				if call.Tool != "a.b" {
					t.Errorf("the host was asked for %q", call.Tool)
				}
			}
			leaksNothing(t, words, got, err)
			t.Logf("%s %v cpu %s heap %d; stderr %.60q", code, err, got.Stats.CPU, got.Stats.Heap, words)
		})
	}
}

// runAndListen runs a script in a worker of the pool and also gives what the worker printed until it was gone.
func runAndListen(t *testing.T, p *Pool, s Script, host Host) (Result, string, error) {
	t.Helper()
	limits := s.Limits.AtMost(p.config.Limits)
	if len(s.Source) > limits.Source { // no worker sees it
		got, err := p.Run(t.Context(), "t1", s, host)
		return got, "", err
	}
	w, err := p.take(t.Context(), false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard(w)
	got, err := newSession(p, w, limits, host).run(t.Context(), s)
	<-w.exited
	return got, w.stderr.String(), err
}

// leaksNothing looks for the worker's words, and for any crash's, in what the tenant is given.
func leaksNothing(t *testing.T, words string, got Result, err error) {
	t.Helper()
	given := fmt.Sprint(err, got.Logs, got.Warnings)
	for line := range strings.Lines(words) {
		if line = strings.TrimSpace(line); len(line) > 3 && strings.Contains(given, line) {
			t.Errorf("the tenant reads %q", line)
		}
	}
	for _, sign := range []string{"goroutine ", "fatal error", "runtime: ", "panic", ".go:", "prelude/", "github.com", "0x", "signal: ", "exit status"} {
		if strings.Contains(given, sign) {
			t.Errorf("the tenant reads of %q: %.300s", sign, given)
		}
	}
}

// neighbour is an innocent script of another tenant that runs while something else does.
type neighbour struct {
	release chan struct{}
	end     chan error
}

// startNeighbour returns when the script is in the middle of its work.
func startNeighbour(t *testing.T, p *Pool) *neighbour {
	n := &neighbour{release: make(chan struct{}), end: make(chan error, 1)}
	began := make(chan struct{})
	host := &fakeHost{tool: func(ctx context.Context, c Call) (json.RawMessage, error) {
		close(began)
		select {
		case <-n.release:
		case <-ctx.Done():
		}
		return c.Args, nil
	}}
	go func() {
		got, err := p.Run(t.Context(), "neighbour", script(`const before = 20; const r = await tools.a.b({x: 1}); return before + r.x`), host)
		if err == nil && string(got.Value) != "21" {
			err = fmt.Errorf("value %s", got.Value)
		}
		n.end <- err
	}()
	select {
	case <-began:
	case err := <-n.end:
		t.Fatalf("the neighbour did not begin: %v", err)
	}
	return n
}

func (n *neighbour) endsWell(t *testing.T) {
	t.Helper()
	close(n.release)
	if err := <-n.end; err != nil {
		t.Errorf("the neighbour was harmed: %v", err)
	}
}
