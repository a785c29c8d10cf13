let s = ''; outer: for (let i = 0; i < 3; i++) { for (let j = 0; j < 3; j++) { if (j === 1) continue outer; if (i === 2) break outer; s += i + '' + j + ' ' } } return s
const fs = []; for (let i = 0; i < 3; i++) fs.push(() => i); return fs.map(f => f())
var fs = []; for (var i = 0; i < 3; i++) fs.push(() => i); return fs.map(f => f())
return (() => { try { return 1 } finally { return 2 } })()
const log = []; try { try { throw 1 } finally { log.push('f') } } catch (e) { log.push(e) } return log
switch (3) { case 1: return 'one'; default: return 'default'; case 2: return 'two' }
switch ('b') { case 'a': case 'b': { const r = []; r.push('ab'); return r } }
function* g() { const x = yield 1; yield x * 2; return 3 } const it = g(); return [it.next(), it.next(5), it.next(), it.next()]
function* g() { try { yield 1; yield 2 } finally { yield 'f' } } const it = g(); return [it.next(), it.return(9), it.next()]
function* a() { yield* [1, 2]; return 3 } function* b() { const r = yield* a(); yield r } return [...b()]
const it = {from: 1, to: 3, [Symbol.iterator]() { let n = this.from; return {next: () => n <= this.to ? {value: n++, done: false} : {value: undefined, done: true}} }}; return [...it]
let log = []; const it = {[Symbol.iterator]() { return {next: () => ({value: 1, done: false}), return() { log.push('closed'); return {} }} }}; for (const x of it) break; const [y] = it; return log
return typeof undeclared
return undeclared
return x; let x = 1
const c = 1; c = 2
return f(); function f() { return 'hoisted' }
return (function () { return arguments.length })(1, 2, 3)
return ((a, b = a + 1, {c = 3} = {}, [d] = [4]) => [a, b, c, d])(1)
return (function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) })(15)
const compose = (...f) => x => f.reduceRight((v, g) => g(v), x); return compose(x => x + 1, x => x * 2)(5)
return [1, 2, 3].map(parseInt)
return (1, 2, 3)
return void 0
let n = 0; const o = {get x() { n++; return null }}; o.x?.a.b.c; return n
return eval
return new Function
var x = 1; { var x = 2 } return x
let x = 1; { let x = 2 } return x
return [typeof f, (() => { { function f() {} } return typeof f })()]
return `${(() => { throw new TypeError('x') })()}`
return null.x
return undefined.x()
return ({}).f()
const o = {}; return o.a.b
return new (void 0)
return [...1]
const {a} = null; return a
return new 5
return 'x' in 'y'
return ({}) instanceof 5
return Symbol() + 1
throw 'a string'
throw {name: 'Custom'}
throw new (class Mine extends Error { name = 'Mine' })('x')
return await Promise.all([1, Promise.resolve(2), new Promise(r => setTimeout(r, 1, 3))])
return await Promise.allSettled([1, Promise.reject(2)])
return await Promise.any([Promise.reject(1), Promise.resolve(2)])
return await Promise.any([Promise.reject(1)])
return await Promise.race([new Promise(r => setTimeout(r, 20, 'slow')), 'fast'])
return await Promise.reject(new RangeError('x')).catch(e => e.name).finally(() => 'ignored')
const log = []; setTimeout(() => log.push('timeout'), 0); queueMicrotask(() => log.push('micro')); Promise.resolve().then(() => log.push('then')); log.push('sync'); await new Promise(r => setTimeout(r, 5)); return log
const log = []; (async () => { log.push(1); await null; log.push(3) })(); log.push(2); await null; await null; return log
const log = []; const p = Promise.resolve(); p.then(() => log.push('a')).then(() => log.push('c')); p.then(() => log.push('b')).then(() => log.push('d')); await p; await 0; await 0; await 0; return log
const t = {then(ok) { ok(7) }}; return await t
async function* g() { yield 1; yield Promise.resolve(2) } const out = []; for await (const x of g()) out.push(x); return out
const out = []; for await (const x of [Promise.resolve(1), 2]) out.push(x); return out
async function* g() { try { yield 1; yield 2 } finally { log.push('closed') } } const log = []; for await (const x of g()) { log.push(x); break } return log
const sleep = ms => new Promise(r => setTimeout(r, ms)); let n = 0; const id = setInterval(() => n++, 1); await sleep(20); clearInterval(id); const was = n; await sleep(5); return n === was && n > 1
const id = setTimeout(() => { throw 1 }, 1); clearTimeout(id); clearTimeout(undefined); clearTimeout('x'); return 'ok'
return await new Promise((_, no) => no(new SyntaxError('x')))
return await (async () => { throw new TypeError('x') })()
new Promise((r) => { r(1); throw new Error('ignored') }); return 'ok'
return typeof setTimeout(() => {}, 0) !== 'undefined'
return setTimeout('code', 0)
return await new Promise(r => queueMicrotask(r)) === undefined
return queueMicrotask(5)
const o = {async *[Symbol.asyncIterator]() { yield 'a' }}; for await (const x of o) return x
label: { break label } return 'after'
if (0) ; else return 'else'
for (const k in {a: 1, b: 2}) if (k === 'b') return k
do { var i = (i ?? 0) + 1 } while (i < 3); return i
return ((x) => { 'use strict'; try { undeclaredVariable = x } catch (e) { return e.name } })(1)
with ({a: 1}) { return a }
return [0, 1].map(x => ({x}))[1].x
var undefined = 5; return undefined
return new Date(0).constructor === Date
return (() => { const a = []; for (const x of [1, 2, 3]) { if (x === 2) continue; a.push(x) } return a })()
return [..."ab"].map((c, i, all) => c + i + all.length)
return ((a, ...b) => b)(1, 2, 3)
return Math.max.apply(null, [1, 2]) + Math.max.call(null, 5) + ((a, b) => a + b).bind(null, 1)(2)
async function f() { return 1 } return f() instanceof Promise
return isNaN(Symbol())
return [1, 2, 3].map(async x => x * 2).length
class A { static async *g() { yield 1 } } for await (const x of A.g()) return x
const a = async () => { await null; throw new URIError('x') }; return a()
return 0.1 * 3 === 0.3 ? 'equal' : 'not'
