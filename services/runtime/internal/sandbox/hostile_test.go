package sandbox

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHostileScripts runs what has broken sandboxes like this one. The pool outlives all of it, which the last script
// of the test shows.
func TestHostileScripts(t *testing.T) {
	p := newPool(t)
	for _, c := range []struct {
		name, source string
		want         []string // codes that are right; "" is success
		value        string   // the value of a success
	}{
		{"loop", `for(;;){}`, []string{CodeCPU}, ""},
		{"loop in finally", `for(;;){try{for(;;);}finally{continue}}`, []string{CodeCPU}, ""},
		{"loop of microtasks", `(function f(){Promise.resolve().then(f)})(); await new Promise(()=>{})`, []string{CodeCPU, CodeMemory}, ""},
		{"endless spread", `[...function*(){for(;;)yield 1}()]`, []string{CodeMemory, CodeCPU}, ""},
		{"repeat", `'x'.repeat(1e9)`, []string{CodeMemory}, ""},
		{"impossible repeat", `'xx'.repeat(2**62)`, []string{CodeException}, ""},
		{"impossible repeat, caught", `try { 'xx'.repeat(2**62) } catch (e) { return e.name }`, []string{""}, `"RangeError"`},
		{"impossible pad", `try { 'xx'.padEnd(2**62) } catch (e) { return e.name }`, []string{""}, `"RangeError"`},
		{"buffer", `new ArrayBuffer(4e9)`, []string{CodeMemory, CodeException}, ""},
		{"typed array", `new Float64Array(2**40)`, []string{CodeMemory, CodeException}, ""},
		{"sparse array", `new Array(1e9).length`, []string{""}, `1000000000`},
		{"filled array", `new Array(1e8).fill(0)`, []string{CodeMemory, CodeCPU}, ""},
		{"doubling", `for(var x='X',a=[];;a.push(x+=x));`, []string{CodeMemory}, ""},
		{"join", `Array(1e9).join('x')`, []string{CodeMemory, CodeCPU}, ""},
		{"many objects", `const a=[]; for(;;) a.push({a:[1,2,3]})`, []string{CodeMemory, CodeCPU}, ""},
		{"map", `const m=new Map(); for(let i=0;;i++) m.set(i,{})`, []string{CodeMemory, CodeCPU}, ""},
		{"backtracking", `/^(?=a)(a+)+$/.test('a'.repeat(40)+'!')`, []string{CodeCPU}, ""},
		{"linear regexp", `/^(a+)+$/.test('a'.repeat(40)+'!')`, []string{""}, `false`},
		{"nested JSON", `JSON.parse('['.repeat(5e6))`, []string{CodeStack, CodeMemory, CodeException}, ""},
		{"nested stringify", `let o={}; for(let i=0;i<1e6;i++) o={o}; JSON.stringify(o)`, []string{CodeStack, CodeMemory, CodeCPU, CodeException}, ""},
		{"nested source", strings.Repeat("(", 60_000), []string{CodeSyntax, CodeStack, CodeMemory}, ""},
		{"nested arrays in source", strings.Repeat("[", 60_000), []string{CodeSyntax, CodeStack, CodeMemory}, ""},
		{"nested templates", strings.Repeat("`${", 20_000), []string{CodeSyntax, CodeStack, CodeMemory, CodeCPU}, ""},
		{"nested unary", strings.Repeat("!", 60_000) + "1", []string{CodeSyntax, CodeStack, CodeMemory, ""}, "true"},
		{"source too large", strings.Repeat("(", 70_000), []string{"too_large"}, ""},
		{"recursion", `function f(){return f()+1}f()`, []string{CodeStack}, ""},
		{"recursion through a getter", `const o={get a(){return this.a}}; o.a`, []string{CodeStack}, ""},
		{"recursion through toString", `const o={toString(){return ''+this}}; ''+o`, []string{CodeStack}, ""},
		{"recursion in a microtask", `await null; function f(){return f()+1} f()`, []string{CodeStack}, ""},
		{"source map", "return 1 //# sourceMappingURL=file:///dev/zero", []string{""}, `1`},
		{"source map in a pattern", "return 1\n//# sourceMappingURL=file:///etc/passwd", []string{""}, `1`},
		{"constructor", `this.constructor.constructor('return process')()`, []string{CodeException}, ""},
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
		{"require", `require('/etc/passwd')`, []string{CodeException}, ""},
		{"process", `typeof process + typeof require + typeof module + typeof global`, []string{""}, `"undefinedundefinedundefinedundefined"`},
		{"patched JSON", `JSON.stringify=()=>'"pwn"'; JSON.parse=()=>'pwn'; return tools.a.b({real: 1})`, []string{""}, `{"real":1}`},
		{"patched everything", `
			Promise.prototype.then = () => { throw 1 }; Array.prototype[Symbol.iterator] = () => { throw 2 };
			Reflect.apply = Object.defineProperty = WeakMap.prototype.get = () => { throw 3 };
			return await tools.a.b({real: 1})`, []string{""}, `{"real":1}`},
		{"never settled", `await new Promise(()=>{})`, []string{CodeDeadlock}, ""},
		{"property class", `/^\p{L}+$/u.test('é')`, []string{""}, `true`},
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
			s := script(c.source)
			s.Limits = Limits{CPU: 500 * time.Millisecond, Heap: 64 << 20}
			got, err := p.Run(t.Context(), "t1", s, &fakeHost{})
			code := codeOf(err)
			if !slices.Contains(c.want, code) {
				t.Fatalf("code %q (%v), want one of %q; value %.100s", code, err, c.want, got.Value)
			}
			if code == "" && string(got.Value) != c.value {
				t.Errorf("value %s, want %s", got.Value, c.value)
			}
			t.Logf("%s %v cpu %s heap %d", code, err, got.Stats.CPU, got.Stats.Heap)
		})
	}
	if _, err := p.Run(t.Context(), "t1", script(`1`), &fakeHost{}); err != nil {
		t.Errorf("the pool did not survive: %v", err)
	}
}
