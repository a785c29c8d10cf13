package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// TestRefusals: what is not here says so, and what to write instead. Nothing is quietly another answer.
func TestRefusals(t *testing.T) {
	p := newPool(t)
	for _, c := range []struct{ source, code, says string }{
		{"return /a/d.exec('a').indices", CodeRegexp, "flag d"},
		{"return new RegExp('[a--b]', 'v')", CodeRegexp, "flag v"},
		{"const x: string = 'a'; return /a/v.test(x)", CodeRegexp, "flag v"},
		{`return /\p{NoSuchThing}/u.test('a')`, CodeRegexp, "NoSuchThing"},
		{"return (1).toLocaleString('de-DE')", CodeException, "only en-US"},
		{"return (1).toLocaleString('en-US', {notation: 'compact'})", CodeException, "notation"},
		{"return (1).toLocaleString('en-US', {maximumSignificantDigits: 2})", CodeException, "maximumSignificantDigits"},
		{"return new Date(0).toLocaleString('en-GB')", CodeException, "only en-US"},
		{"return new Date(0).toLocaleString('en-US', {timeZone: 'America/New_York'})", CodeException, "UTC"},
		{"return new Date(0).toLocaleString('en-US', {timeZoneName: 'short'})", CodeException, "timeZoneName"},
		{"return 'i'.toLocaleUpperCase('tr')", CodeException, "tr"},
		{"return new TextDecoder('latin1')", CodeException, "utf-8 and utf-16le"},
		{"return crypto.subtle.encrypt({}, {}, new Uint8Array(1))", CodeException, "digest, importKey, sign and verify"},
	} {
		t.Run(c.source, func(t *testing.T) {
			got, err := p.Run(t.Context(), "t1", script(c.source), &fakeHost{})
			var failed *ScriptError
			if !errors.As(err, &failed) || failed.Code != c.code || !strings.Contains(failed.Message, c.says) || failed.Line != 1 {
				t.Errorf("%s, %v; want %s that says %q", got.Value, err, c.code, c.says)
			}
		})
	}
}

// TestLanguage is what a model may write and what it gets.
func TestLanguage(t *testing.T) {
	p := newPool(t)
	for _, c := range []struct{ name, source, want string }{
		{"return", `return 1 + 1`, `2`},
		{"nothing", `const x = 1`, `null`},
		{"empty", ``, `null`},
		{"comment only", `// nothing`, `null`},
		{"last expression", `const x = 20; x + 1`, `21`},
		{"last expression after a return in a function", `const f = () => { return 1 }; f() + 1`, `2`},
		{"early return keeps its meaning", `if (true) return 1; 2`, `1`},
		{"promise", `tools.a.b({x: 1})`, `{"x":1}`},
		{"arrow", `async () => (await tools.a.b({x: 1})).x`, `1`},
		{"function", `async function main() { return 3 }`, `3`},
		{"export default", "export default async function () { return 4 }", `4`},
		{"helper and export default", "const two = 2\nexport default () => two", `2`},
		{"fence", "```ts\nconst n: number = 5\nreturn n\n```", `5`},
		{"types", `interface P { a: string } const p = {a: 'x'} as P; enum E { A, B } return [p.a!, E.B] as const`, `["x",1]`},
		{"generics", `const id = <T,>(x: T): T => x; return id<number>(6)`, `6`},
		{"a generic call that is also JavaScript", `function id(x) { return x } return id<string>('y')`, `"y"`},
		{"class fields", `class A { #x = 1; static y = 2; get x() { return this.#x } } return [new A().x, A.y]`, `[1,2]`},
		{"for await", `async function* g() { yield 1; yield 2 } let s = 0; for await (const x of g()) s += x; return s`, `3`},
		{"optional", `const o = null; return o?.a?.b ?? 'none'`, `"none"`},
		{"sloppy", `x = 1; return x`, `1`},
		{"tools are callable at the root", `return tools.lone({q: 'x'})`, `{"q":"x"}`},
		{"tools by brackets", `return tools['a']['b']({x: 2})`, `{"x":2}`},
		{"no arguments", `return tools.a.b()`, `{}`},
		{"awaiting tools calls nothing", `await tools; await tools.a; return [typeof tools, typeof tools.a, typeof tools.a.b, String(tools.then)]`, `["object","function","function","undefined"]`},
		{"tools do not list", `try { Object.keys(tools) } catch (e) { return e.message.includes('tools.<connection>') }`, `true`},
		{"tools do not change", `try { tools.a = 1 } catch (e) {} try { tools = 1 } catch (e) {} return typeof tools.a`, `"function"`},
		{"tool errors", `try { await tools.a.c() } catch (e) { return [e instanceof ToolError, e instanceof Error, e.name, e.code] }`, `[true,true,"ToolError","tool_unknown"]`},
		{"parallel", `const r = await Promise.all([1,2,3].map(x => tools.a.b({x}))); return r.map(r => r.x)`, `[1,2,3]`},
		{"timers", `const t = []; await new Promise(r => { setTimeout(() => t.push('b'), 2); setTimeout(() => t.push('a'), 1); setTimeout(r, 3) }); return t`, `["a","b"]`},
		{"interval", `let n = 0; await new Promise(r => { const id = setInterval(() => { if (++n === 3) { clearInterval(id); r() } }, 1) }); return n`, `3`},
		{"cleared timer does not keep it alive", `const id = setTimeout(() => {}, 1e8); clearTimeout(id); return 1`, `1`},
		{"timer arguments", `return await new Promise(r => setTimeout(r, 0, 'x'))`, `"x"`},
		{"microtasks first", `const o = []; setTimeout(() => o.push(3), 0); queueMicrotask(() => o.push(2)); o.push(1); await new Promise(r => setTimeout(r, 1)); return o`, `[1,2,3]`},
		{"the clock stands", `const a = Date.now(); await tools.a.b(); return [Date.now() - a, a, new Date().getTimezoneOffset()]`, `[0,1700000000000,0]`},
		{"the clock moves with timers", `const a = Date.now(), b = performance.now(); await new Promise(r => setTimeout(r, 5)); return [Date.now() - a, performance.now() - b]`, `[5,5]`},
		{"URL", `const u = new URL('../x?a=1&a=2#h', 'https://User:pw@Example.com:443/p/q/r'); u.searchParams.append('b', 'c d&'); return [u.href, u.host, u.pathname, u.searchParams.getAll('a'), u.origin]`,
			`["https://User:pw@example.com/p/x?a=1&a=2&b=c+d%26#h","example.com","/p/x",["1","2"],"https://example.com"]`},
		{"URL changes", `const u = new URL('http://a.b/'); u.pathname = 'x y?'; u.port = '8080'; u.search = 'q=1'; u.hash = 'z'; return String(u)`, `"http://a.b:8080/x%20y%3F?q=1#z"`},
		{"bad URL", `try { new URL('nope') } catch (e) { return [e.name, URL.canParse('nope'), URL.canParse('http://x')] }`, `["TypeError",false,true]`},
		{"search params", `const p = new URLSearchParams({a: '1 2', b: 'ü'}); p.set('a', '3'); return [String(p), [...p], new URLSearchParams('?x=%ff&y').get('x')]`, `["a=3&b=%C3%BC",[["a","3"],["b","ü"]],"` + "\ufffd" + `"]`},
		{"encoding", `return [[...new TextEncoder().encode('é€')], new TextDecoder().decode(new Uint8Array([0xef,0xbb,0xbf,104,105]))]`, `[[195,169,226,130,172],"hi"]`},
		{"decoding a view", `return new TextDecoder().decode(new Uint8Array([1,104,105,2]).subarray(1,3))`, `"hi"`},
		{"fatal decoding", `try { new TextDecoder('utf-8', {fatal: true}).decode(new Uint8Array([255])) } catch (e) { return e.name }`, `"TypeError"`},
		{"base64", `return [btoa('hÿ'), atob('aP8=') === 'hÿ', atob(' aGk ')]`, `["aP8=",true,"hi"]`},
		{"structuredClone", `const o = {d: new Date(5), m: new Map([[1, new Set([2])]]), a: [1,,3]}; o.self = o; const c = structuredClone(o); return [c !== o, c.self === c, c.d.getTime(), [...c.m.get(1)], c.a.length, (() => { try { structuredClone(() => 1) } catch (e) { return e.name } })()]`, `[true,true,5,[2],3,"DataCloneError"]`},
		{"Object.groupBy", `const g = Object.groupBy([1, 2, 3], x => x % 2 ? 'odd' : 'even'); return [g, Object.getPrototypeOf(g)]`, `[{"odd":[1,3],"even":[2]},null]`},
		{"Map.groupBy", `const k = {}; const g = Map.groupBy([1, 2, 3], x => x > 1 ? k : null); return [g instanceof Map, g.get(k), g.get(null)]`, `[true,[2,3],[1]]`},
		{"Promise.withResolvers", `const {promise, resolve} = Promise.withResolvers(); setTimeout(resolve, 1, 'x'); return promise`, `"x"`},
		{"Promise.try", `return [await Promise.try((a, b) => a + b, 1, 2), await Promise.try(() => { throw new RangeError('x') }).catch(e => e.name)]`, `[3,"RangeError"]`},
		{"Array.fromAsync", `async function* g() { yield 1; yield 2 } return [await Array.fromAsync(g()), await Array.fromAsync([Promise.resolve(3), 4], x => x * 2), await Array.fromAsync({length: 2, 0: 'a', 1: Promise.resolve('b')}), await Array.fromAsync(new Set([5]))]`, `[[1,2],[6,8],["a","b"],[5]]`},
		{"iterator helpers", `function* n() { let i = 0; for (;;) yield i++ } return [n().filter(x => x % 2).map(x => x * x).drop(1).take(3).toArray(), [1, 2].values().flatMap(x => [x, x]).toArray(), n().find(x => x > 3), n().take(4).reduce((a, b) => a + b), n().some(x => x > 2), n().take(3).every(x => x < 2), new Map([[1, 2]]).entries().map(([k, v]) => k + v).toArray()]`,
			`[[9,25,49],[1,1,2,2],4,6,true,false,[3]]`},
		{"iterator helpers close what they read", `let closed = 0; function* g() { try { yield 1; yield 2 } finally { closed++ } } g().take(1).toArray(); g().find(x => x === 1); const m = g().map(x => x); m.next(); m.return(); try { g().map(() => { throw 1 }).toArray() } catch {} for (const x of g().filter(() => true)) break; return closed`, `5`},
		{"iterators of one's own", `class Count extends Iterator { n = 0; next() { return {done: this.n > 2, value: this.n++} } } return [new Count().map(x => x + 1).toArray(), Iterator.from({next: () => ({done: true})}).toArray(), Iterator.from('ab').toArray(), (() => { try { new Iterator() } catch (e) { return e.name } })(), (() => { try { [].values().take(-1) } catch (e) { return e.name } })()]`, `[[1,2,3],[],["a","b"],"TypeError","RangeError"]`},
		{"set methods", `return [[...new Set([1, 2]).union(new Set([3]))], [...new Set([1, 2]).intersection(new Set([2]))], [...new Set([1, 2]).difference(new Set([2]))], new Set([1]).isSubsetOf(new Set([1, 2]))]`, `[[1,2,3],[2],[1],true]`},
		{"base64 and hex of bytes", `return [new Uint8Array([1, 255]).toBase64(), new Uint8Array([1, 255]).toHex(), [...Uint8Array.fromBase64('Af8=')], [...Uint8Array.fromHex('01ff')]]`, `["Af8=","01ff",[1,255],[1,255]]`},
		{"URL.parse", `return [URL.parse('x'), URL.parse('x', 'http://a.b/').href]`, `[null,"http://a.b/x"]`},
		{"async iterables of one's own", `const o = {async *[Symbol.asyncIterator]() { yield 1; yield 2 }}; let n = 0; for await (const x of o) n += x; return n`, `3`},
		{"random is seeded", `return [Math.random() !== Math.random(), crypto.randomUUID().length, crypto.getRandomValues(new Uint8Array(4)).length]`, `[true,36,4]`},
		{"AbortController", `const c = new AbortController(); let n = 0; c.signal.addEventListener('abort', () => n++); c.abort(); c.abort(); return [n, c.signal.aborted, c.signal.reason.name]`, `[1,true,"AbortError"]`},
		{"regexps still are", `const r = /a(b)/g; return ['xab'.replace(r, '[$1]'), r instanceof RegExp, r.constructor === RegExp, 'a,b'.split(/,/), new RegExp('x', 'g').flags]`, `["x[b]",true,true,["a","b"],"g"]`},
		{"strings still are", `return ['ab'.repeat(2), 'a'.padStart(3), 'a'.padEnd(3, 'xy'), ''.repeat(1e9)]`, `["abab","  a","axy",""]`},
		{"functions still are", `return [(() => {}) instanceof Function, typeof Function.prototype.call, (function(){}).call.name]`, `[true,"function","call"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := p.Run(t.Context(), "t1", script(c.source), &fakeHost{})
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Value) != c.want {
				t.Errorf("value %s\nwant  %s", got.Value, c.want)
			}
		})
	}
}

func TestErrorsPointAtTheSource(t *testing.T) {
	p := newPool(t)
	for _, c := range []struct {
		name, source, code string
		line, col          int
		says               string
	}{
		{"thrown", "const a = 1\nconst b = 2\nthrow new Error('x')", CodeException, 3, 7, "x"},
		{"first line", "throw new Error('x')", CodeException, 1, 7, "x"},
		{"after other letters", "const a = 'é😀'; throw new Error('x')", CodeException, 1, 24, "x"},
		{"after other letters, typed", "const a: string = 'é😀'; throw new Error('x')", CodeException, 1, 32, "x"},
		{"typed", "interface A {\n  a: string\n}\nconst x: A = {a: 'x'}\nnull.y", CodeException, 5, 6, "'y'"},
		{"in a fence", "```js\n\nnull.y\n```", CodeException, 3, 6, "'y'"},
		{"in a typed fence", "\n```ts\nconst a: number = 1\n  missing(a)\n```\n", CodeException, 4, 3, "missing is not defined"},
		{"in an arrow function", "async () => {\n  missing()\n}", CodeException, 2, 10, "missing is not defined"},
		{"in an async function", "async function main() {\n  await null\n  missing()\n}", CodeException, 3, 10, "missing is not defined"},
		{"in an export default", "const one = 1\nexport default async () => {\n  missing(one)\n}", CodeException, 3, 10, "missing is not defined"},
		{"in an export default, on its line", "export default () => missing()", CodeException, 1, 29, "missing is not defined"},
		{"after an await", "await null\nmissing()", CodeException, 2, 8, "missing is not defined"},
		{"in a callback", "await new Promise((r) => setTimeout(r, 1))\n;[1].forEach(() => {\n  null.y\n})", CodeException, 3, 8, "'y'"},
		{"in a timer", "setTimeout(() => {\n  null.y\n}, 1)\nawait new Promise(() => {})", CodeException, 2, 8, "'y'"},
		{"syntax", "const a = 1\nconst = 2", CodeSyntax, 2, 7, "Expected identifier"},
		{"typed syntax", "const a: number = 1\nconst b: = 2", CodeSyntax, 2, 10, "Unexpected"},
		{"twice", "const a = 'é'; const a = 2", CodeSyntax, 1, 22, "already been declared"},
		{"not closed", "if (true) {\n  return [1\n", CodeSyntax, 3, 1, "something is not closed"},
		{"closed too often", "return 1 }", CodeSyntax, 1, 11, "or is closed twice"},
		{"import", "import fs from 'fs'\nreturn 1", CodeUnsupported, 1, 1, "no import"},
		{"import, later", "const a = 1;  import fs from 'fs'\nreturn 1", CodeUnsupported, 1, 15, "no import"},
		{"import by a call", "return 1 +\n  await import('fs')", CodeUnsupported, 2, 9, "no import"},
		{"import.meta", "return import.meta.url", CodeUnsupported, 1, 8, "no import"},
		{"named export", "export const a = 1", CodeUnsupported, 1, 1, "at most one export default"},
		{"two exports", "export default 1\nexport default 2", CodeUnsupported, 1, 1, "at most one export default"},
		{"require", "const fs = require('fs')", CodeException, 1, 19, "there are no modules"},
		{"Buffer", "\nBuffer.from('x')", CodeException, 2, 1, "use Uint8Array"},
		{"process", "return process.env.HOME", CodeException, 1, 8, "no environment"},
		{"Intl", "return new Intl.NumberFormat()", CodeException, 1, 12, "toLocaleString"},
		{"a connection without tools", "return gh.list()", CodeException, 1, 8, "write tools.gh"},
		{"tool", "\nawait tools.a.nope()", CodeToolUnknown, 2, 0, "there is a.b"},
		{"connection", "\nawait tools.nope.b()", CodeToolUnknown, 2, 0, "there is a.b, gh.list, "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := p.Run(t.Context(), "t1", script(c.source), &fakeHost{})
			var failed *ScriptError
			if !errors.As(err, &failed) || failed.Code != c.code || failed.Line != c.line || c.col > 0 && failed.Col != c.col || !strings.Contains(failed.Message, c.says) {
				t.Errorf("got %v, want %s at %d:%d that says %q", err, c.code, c.line, c.col, c.says)
			}
		})
	}
	off := script("\nconst r = await fetch('https://a.test/')")
	off.Fetch = false
	_, err := p.Run(t.Context(), "t1", off, &fakeHost{})
	var failed *ScriptError
	if !errors.As(err, &failed) || failed.Code != CodeFetchDisabled || failed.Line != 2 || !strings.Contains(failed.Message, "call a granted tool") {
		t.Errorf("fetch where it is not enabled: %v", err)
	}
}

func TestReplayGivesTheSame(t *testing.T) {
	p := newPool(t)
	const source = `
		const out = [Math.random(), crypto.randomUUID(), Date.now(), [...crypto.getRandomValues(new Uint8Array(4))]];
		await new Promise(r => setTimeout(r, 3));
		return [...out, Date.now(), Math.random()]`
	var values []string
	for range 2 {
		got, err := p.Run(t.Context(), "t1", script(source), &fakeHost{})
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(got.Value))
	}
	other := script(source)
	other.Seed = 8
	got, err := p.Run(t.Context(), "t1", other, &fakeHost{})
	if err != nil {
		t.Fatal(err)
	}
	if values[0] != values[1] || values[0] == string(got.Value) {
		t.Errorf("the same seed: %s and %s; another: %s", values[0], values[1], got.Value)
	}
}

func TestParallelCalls(t *testing.T) {
	p := newPool(t)
	// Nobody is answered until all three have asked: they are in flight together.
	var all sync.WaitGroup
	all.Add(3)
	host := &fakeHost{tool: func(_ context.Context, c Call) (json.RawMessage, error) {
		all.Done()
		all.Wait()
		return c.Args, nil
	}}
	got, err := p.Run(t.Context(), "t1", script(`return Promise.all([1, 2, 3].map(n => tools.a.b({n})))`), host)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Value) != `[{"n":1},{"n":2},{"n":3}]` || got.Calls != 3 {
		t.Errorf("value %s, %d calls", got.Value, got.Calls)
	}
	for _, c := range host.calls {
		if want := []string{`{"n":1}`, `{"n":2}`, `{"n":3}`}[c.Seq-1]; string(c.Args) != want {
			t.Errorf("call %d has %s, want %s", c.Seq, c.Args, want)
		}
	}
}

func TestConcurrentCallsAreBounded(t *testing.T) {
	p := newPool(t)
	var mu sync.Mutex
	inside, most := 0, 0
	host := &fakeHost{tool: func(_ context.Context, c Call) (json.RawMessage, error) {
		mu.Lock()
		inside++
		most = max(most, inside)
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		inside--
		mu.Unlock()
		return c.Args, nil
	}}
	s := script(`return (await Promise.all(Array.from({length: 40}, (_, n) => tools.a.b({n})))).length`)
	s.Limits.Concurrent = 4
	got, err := p.Run(t.Context(), "t1", s, host)
	if err != nil || string(got.Value) != "40" || most > 4 {
		t.Errorf("%s, %v, at most %d at once", got.Value, err, most)
	}
}

func TestToolErrorsReachTheScript(t *testing.T) {
	p := newPool(t)
	host := &fakeHost{tool: func(context.Context, Call) (json.RawMessage, error) {
		return nil, problem.Wrap(errors.New("password=hunter2"), problem.Denied, "no grant allows this")
	}}
	got, err := p.Run(t.Context(), "t1", script(`try { await tools.a.b() } catch (e) { return [e.code, e.message, JSON.stringify(e), e.stack.includes('hunter2')] }`), host)
	if err != nil || string(got.Value) != `["denied","no grant allows this","{\"code\":\"denied\"}",false]` {
		t.Errorf("%s, %v", got.Value, err)
	}
	_, err = p.Run(t.Context(), "t1", script(`await tools.a.b()`), host)
	var failed *ScriptError
	if !errors.As(err, &failed) || failed.Code != "denied" || failed.Name != "ToolError" || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("uncaught: %v", err)
	}
}

func TestHostAborts(t *testing.T) {
	p := newPool(t)
	held := problem.New(problem.Held, "a person decides")
	host := &fakeHost{tool: func(context.Context, Call) (json.RawMessage, error) { return nil, Abort(held) }}
	_, err := p.Run(t.Context(), "t1", script(`try { await tools.a.b() } catch {} return 'went on'`), host)
	if !errors.Is(err, held) {
		t.Errorf("got %v", err)
	}
}

func TestLogsAndWarnings(t *testing.T) {
	p := newPool(t)
	host := &fakeHost{}
	got, err := p.Run(t.Context(), "t1", script(`
		console.log('a', {b: [1, 2n]}, null, undefined, () => 1); console.error(new TypeError('bad'));
		Promise.reject(new Error('lost')); tools.a.b({not: 'awaited'}); return 1`), host)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Logs) != 2 || got.Logs[0] != (Line{"info", `a {"b":[1,"2n"]} null undefined [function ]`}) ||
		got.Logs[1].Level != "error" || !strings.HasPrefix(got.Logs[1].Text, "TypeError: bad") {
		t.Errorf("logs %q", got.Logs)
	}
	if len(host.lines) != 2 {
		t.Errorf("the host heard %q", host.lines)
	}
	if !slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, "lost") }) ||
		!slices.ContainsFunc(got.Warnings, func(w string) bool { return strings.Contains(w, "not awaited") }) {
		t.Errorf("warnings %q", got.Warnings)
	}
}

func TestFetch(t *testing.T) {
	p := newPool(t)
	big := strings.Repeat("0123456789", 300_000)
	host := &fakeHost{fetch: func(_ context.Context, r Request) (Response, error) {
		switch r.URL {
		case "https://ok.test/":
			return Response{Status: 201, StatusText: "Created", URL: r.URL,
				Header: []Field{{Name: "Content-Type", Value: "application/json"}, {Name: "X-A", Value: "1"}, {Name: "X-A", Value: "2"}}, Body: []byte(`{"n":"é"}`)}, nil
		case "https://big.test/":
			return Response{Status: 200, URL: r.URL, Body: []byte(big)}, nil
		case "https://huge.test/":
			return Response{Status: 200, URL: r.URL, Body: make([]byte, 6<<20)}, nil
		}
		return Response{}, problem.New(problem.Denied, "not a public address")
	}}
	for _, c := range []struct{ name, source, want string }{
		{"json", `const r = await fetch('https://ok.test/', {method: 'post', headers: {'X-B': 'y'}, body: 'hi'}); return [r.status, r.ok, r.statusText, r.headers.get('x-a'), await r.json()]`, `[201,true,"Created","1, 2",{"n":"é"}]`},
		{"text once", `const r = await fetch(new URL('https://ok.test')); await r.text(); try { await r.text() } catch (e) { return e.name }`, `"TypeError"`},
		{"several frames", `return (await (await fetch('https://big.test/')).text()).length`, `3000000`},
		{"too large", `try { await fetch('https://huge.test/') } catch (e) { return [e instanceof FetchError, e.code] }`, `[true,"fetch_too_large"]`},
		{"blocked", `try { await fetch('http://169.254.169.254/') } catch (e) { return [e.name, e.code] }`, `["FetchError","fetch_blocked"]`},
		{"line break in a header", `try { await fetch('https://ok.test/', {headers: {a: 'a\r\nHost: x'}}) } catch (e) { return e.name }`, `"TypeError"`},
		{"header name", `try { await fetch('https://ok.test/', {headers: {'a b': 'x'}}) } catch (e) { return e.name }`, `"TypeError"`},
		{"object as body", `try { await fetch('https://ok.test/', {body: {}}) } catch (e) { return e.message.includes('JSON.stringify') }`, `true`},
		{"aborted", `try { await fetch('https://ok.test/', {signal: AbortSignal.abort()}) } catch (e) { return e.name }`, `"AbortError"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			host.fetches = nil
			got, err := p.Run(t.Context(), "t1", script(c.source), host)
			if err != nil || string(got.Value) != c.want {
				t.Errorf("%s, %v, want %s", got.Value, err, c.want)
			}
			if strings.Contains(c.name, "header") && len(host.fetches) > 0 {
				t.Error("something was sent")
			}
		})
	}
	off := script(`await fetch('https://ok.test/')`)
	off.Fetch = false
	if _, err := p.Run(t.Context(), "t1", off, host); codeOf(err) != CodeFetchDisabled {
		t.Errorf("fetch that is off: %v", err)
	}
}
