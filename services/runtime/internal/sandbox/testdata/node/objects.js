return Object.fromEntries([['a', 1], ['b', 2]])
return Object.entries({b: 1, a: 2, 1: 3, 0: 4})
return {...{a: 1}, ...null, ...'hi', ...[9]}
const {a, b: {c = 5} = {}, ...rest} = {a: 1, x: 2, y: 3}; return {a, c, rest}
return Object.assign({}, {a: 1}, null, {b: 2})
return Object.is(NaN, NaN)
return Object.hasOwn({a: 1}, 'a') && !Object.hasOwn({}, 'toString')
return Object.getOwnPropertyNames('ab')
return Object.freeze([1, 2]).push(3)
'use strict'; const o = Object.freeze({a: 1}); o.a = 2
const o = {a: 1, get b() { return this.a + 1 }, set b(v) { this.a = v }}; o.b = 5; return [o.a, o.b, Object.keys(o)]
return Object.entries(Object.getOwnPropertyDescriptors({get x() { return 1 }, y: 2})).map(([k, d]) => [k, typeof d.get, d.value])
const o = Object.create({inherited: 1}, {own: {value: 2, enumerable: true}}); const keys = []; for (const k in o) keys.push(k); return keys
class A { #x = 1; static n = 0; static { A.n = 7 } get x() { return this.#x } set x(v) { this.#x = v } #p() { return 'p' } call() { return this.#p() } static is(o) { return #x in o } } const a = new A; a.x = 3; return [a.x, A.n, a.call(), A.is(a), A.is({})]
class A { constructor() { this.t = new.target.name } } class B extends A { m() { return super.constructor.name } } return [new B().t, new B().m(), new B instanceof A]
class A {} return A()
class A extends null {} return new A()
class A { static #count = 0; static make() { return ++A.#count } } A.make(); return A.make()
class A { x = this.y; y = 2 } return new A()
class E extends Error { constructor(m) { super(m); this.name = 'E' } } try { throw new E('x') } catch (e) { return [e instanceof E, e instanceof Error, String(e), e.message] }
return new Error('x', {cause: {a: 1}}).cause
return new AggregateError([1, 2], 'm').errors
return [new TypeError('x').toString(), Object.prototype.toString.call(new RangeError), Error('y').message, 'stack' in new Error]
const m = new Map([['a', 1], [NaN, 2], [0, 3]]); m.delete('a'); m.set(-0, 4); return [[...m], m.size, m.get(NaN)]
const s = new Set([1, '1', NaN, NaN, 0, -0]); return [s.size, [...s]]
const w = new WeakMap(), k = {}; w.set(k, 1); return [w.get(k), w.has({}), new WeakSet([k]).has(k)]
return new WeakMap().set(1, 1)
const log = []; const p = new Proxy({}, {get: (t, k) => { log.push(k); return 1 }, has: () => true, ownKeys: () => ['z'], getOwnPropertyDescriptor: () => ({value: 1, enumerable: true, configurable: true})}); p.a; 'q' in p; return [log, Object.keys(p)]
return Reflect.ownKeys({b: 1, 2: 1, a: 1, 1: 1, [Symbol.iterator]: 1}).map(String)
return [Reflect.has({a: 1}, 'a'), Reflect.apply(Math.max, null, [1, 2]), Reflect.construct(Date, [0]).getTime(), Reflect.getPrototypeOf([]) === Array.prototype]
const s = Symbol.for('x'); return [s === Symbol.for('x'), Symbol.keyFor(s), {[s]: 1}[s], JSON.stringify({[s]: 1})]
const o = {[Symbol.toPrimitive]: hint => hint}; return [`${o}`, o + '', o * 1]
const o = {valueOf: () => 5, toString: () => 'str'}; return [o + 1, `${o}`, o > 4]
const o = {get [Symbol.toStringTag]() { return 'Mine' }}; return String(o)
return JSON.stringify({u: undefined, f() {}, d: new Date(0), n: null, nan: NaN, inf: -Infinity, nested: [undefined, () => 1]})
return JSON.stringify({b: [1, {c: 2}], a: 'x'}, null, 2)
return JSON.stringify({a: 1, b: 2, c: {a: 3, d: 4}}, ['a', 'c'], '--')
return JSON.stringify({a: 1, b: 'x'}, (k, v) => typeof v === 'number' ? v * 2 : v)
return JSON.stringify([new Map([[1, 2]]), new Set([1]), new Error('x'), /x/, new Uint8Array([1, 2])])
return JSON.stringify({toJSON: k => 'via ' + k})
return [JSON.stringify(undefined), JSON.stringify(null), JSON.stringify('a"b'), JSON.stringify(Object(1)), JSON.stringify('\ud83d\ude00\ud83d')]
return JSON.parse('{"a":[1,2,{"b":null}],"__proto__":1}')
return JSON.parse('[1,2,3]', (k, v) => typeof v === 'number' ? v + 1 : v)
return JSON.parse(' {"a" : 1e2 , "b":-0.5,"c":"\\u0041\\n"} ')
return JSON.parse('{a:1}')
return JSON.parse('')
return JSON.parse('[1,]')
return JSON.parse("{'a':1}")
return JSON.parse('{"a":1,"a":2}')
return JSON.parse('01')
return JSON.parse('"\n"')
return JSON.parse('1 2')
return JSON.parse('1e999')
return JSON.parse('"\\ud800"').length
const a = {}; a.a = a; return JSON.stringify(a)
return structuredClone({d: new Date(5), m: new Map([[1, new Set([2])]]), r: /a/gi, u: undefined, n: null, b: new Uint8Array([1, 2])}).r.flags
const o = {a: [1, {b: 2}], d: new Date(7)}; o.self = o; const c = structuredClone(o); return [c.self === c, c.a[1].b, c.a !== o.a, c.d.getTime(), c.d instanceof Date]
return structuredClone(() => 1)
return structuredClone(Symbol('x'))
return structuredClone({e: new RangeError('x')}).e.name
return Object.keys(structuredClone(new (class A { x = 1 })))
return structuredClone([1, , 3]).length
return structuredClone(new Float32Array([1.5, 2.5]))[1]
return [structuredClone(Object('s')) instanceof String, structuredClone(Object(1)) + 1]
return structuredClone(new WeakMap())
const b = new ArrayBuffer(4); const c = structuredClone({a: new Uint8Array(b), b: new Uint16Array(b)}); return c.a.buffer === c.b.buffer
const o = {a: {b: null}}; return [o?.a?.b?.c, o.x?.y.z, o.f?.(), o?.['a'], delete o?.a]
let a = null, b = 0, c = ''; a ??= 1; b ||= 2; c &&= 3; return [a, b, c, null ?? 'd', 0 ?? 'd']
return ({a: 1, ['b' + 1]: 2, 3: 'c', 'd e': 4})
return [...Object.entries({x: 1})].flat()
return Object.entries(Object.groupBy ? {} : {})
return (function () { return typeof this })() + (function () { 'use strict'; return typeof this })()
return new Date(NaN) + ''
return Object.getOwnPropertyNames(class { static m() {} }).sort()
return [(() => {}).name, (function f() {}).length, ((a, b = 1, ...c) => {}).length, (class K {}).name]
return [].constructor.name + ({}).constructor.name + (async () => {}).constructor.name
return globalThis === (function () { return this })()
return JSON.stringify({a: [], b: [[], [1]], c: {d: {}, e: [{}, {f: 1}]}}, null, '\t-')
return JSON.stringify([1, [2]], null, 20) + JSON.stringify(undefined, null, 2)
