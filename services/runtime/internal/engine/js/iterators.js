// Iterator and its helpers: lazy map, filter, take, drop, flatMap; and what uses a sequence up.
(function (host, core) {
  'use strict';
  if (globalThis.Iterator) return;
  const { apply } = core;
  const { iterator } = Symbol;
  const proto = Object.getPrototypeOf(Object.getPrototypeOf([][iterator]()));

  function Iterator() {
    if (new.target === undefined || new.target === Iterator) throw new TypeError('Iterator is for classes to extend');
  }
  Object.defineProperty(Iterator, 'prototype', { value: proto });

  const callable = (f) => {
    if (typeof f !== 'function') throw new TypeError(core.show(f) + ' is not a function');
    return f;
  };
  const count = (n) => {
    const size = Number(n);
    if (size !== size) throw new RangeError('not a number of steps');
    const whole = Math.trunc(size);
    if (whole < 0) throw new RangeError('a number of steps is not negative');
    return whole;
  };
  const object = (it) => {
    if ((typeof it !== 'object' && typeof it !== 'function') || it === null) throw new TypeError('not an iterator');
    return it;
  };
  // close ends a sequence early; an error on the way is the reader's own.
  const close = (it) => { if (it.return !== undefined && it.return !== null) it.return(); };
  // each goes through it, and closes it when f throws or says true.
  const each = (it, f) => {
    const { next } = object(it);
    for (let i = 0; ; i++) {
      const step = object(apply(next, it, []));
      if (step.done) return;
      let stop;
      try {
        stop = f(step.value, i);
      } catch (e) {
        try { close(it); } catch {}
        throw e;
      }
      if (stop) {
        close(it);
        return;
      }
    }
  };
  // lazy makes a helper: a generator that closes what it reads when it is closed itself.
  const helper = Object.create(proto);
  const steps = new WeakMap();
  const of = (h) => {
    const g = steps.get(h);
    if (!g) throw new TypeError('not an iterator helper');
    return g;
  };
  Object.defineProperty(helper, 'next', { value() { return of(this).generator.next(); }, writable: true, configurable: true });
  Object.defineProperty(helper, 'return', {
    value() {
      const g = of(this);
      if (!g.begun()) close(g.source);
      return g.generator.return();
    }, writable: true, configurable: true,
  });
  Object.defineProperty(helper, Symbol.toStringTag, { value: 'Iterator Helper', configurable: true });
  const lazy = (it, make) => {
    const { next } = object(it);
    let begun = false;
    const read = {
      [iterator]: () => ({
        next: () => object(apply(next, it, [])),
        return: () => { close(it); return {}; },
      }),
    };
    const made = Object.create(helper);
    const generator = (function* () { begun = true; yield* make(read); })();
    steps.set(made, { generator, source: it, begun: () => begun });
    return made;
  };
  // flattened is what flatMap takes from a function: any iterable but a string.
  const flattened = (v) => {
    object(v);
    return typeof v[iterator] === 'function' ? v : { [iterator]: () => v };
  };

  const methods = {
    map(f) { callable(f); return lazy(this, function* (read) { let i = 0; for (const x of read) yield f(x, i++); }); },
    filter(f) { callable(f); return lazy(this, function* (read) { let i = 0; for (const x of read) if (f(x, i++)) yield x; }); },
    take(n) {
      const most = count(n), source = object(this);
      return lazy(this, function* (read) {
        if (most === 0) return close(source);
        let left = most;
        for (const x of read) { yield x; if (--left === 0) return; }
      });
    },
    drop(n) { const least = count(n); return lazy(this, function* (read) { let left = least; for (const x of read) if (left > 0) left--; else yield x; }); },
    flatMap(f) { callable(f); return lazy(this, function* (read) { let i = 0; for (const x of read) yield* flattened(f(x, i++)); }); },
    toArray() { const out = []; each(this, (x) => { out.push(x); }); return out; },
    forEach(f) { callable(f); each(this, (x, i) => { f(x, i); }); },
    some(f) { callable(f); let found = false; each(this, (x, i) => (found = Boolean(f(x, i)))); return found; },
    every(f) { callable(f); let all = true; each(this, (x, i) => !(all = Boolean(f(x, i)))); return all; },
    find(f) { callable(f); let hit; each(this, (x, i) => (f(x, i) ? ((hit = x), true) : false)); return hit; },
    reduce(f, ...start) {
      callable(f);
      let value = start[0], empty = start.length === 0;
      each(this, (x, i) => { value = empty ? x : f(value, x, i); empty = false; });
      if (empty) throw new TypeError('reduce of an empty iterator with no initial value');
      return value;
    },
  };
  for (const name of Object.keys(methods)) Object.defineProperty(proto, name, { value: methods[name], writable: true, configurable: true });
  Object.defineProperty(proto, 'constructor', { value: Iterator, writable: true, configurable: true });
  Object.defineProperty(proto, Symbol.toStringTag, { value: 'Iterator', writable: true, configurable: true });
  Object.defineProperty(Iterator, 'from', {
    value(source) {
      const it = typeof source === 'string' ? source[iterator]() : typeof object(source)[iterator] === 'function' ? object(source[iterator]()) : source;
      if (proto.isPrototypeOf(it)) return it;
      const { next } = it;
      const wrapped = Object.create(proto);
      wrapped.next = () => apply(next, it, []);
      wrapped.return = () => (it.return === undefined ? { value: undefined, done: true } : it.return());
      return wrapped;
    }, writable: true, configurable: true,
  });
  core.define('Iterator', Iterator);
});
