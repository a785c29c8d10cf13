// What the language has and the engine does not yet: grouping, promises with their own functions, async iteration.
(function (host, core) {
  'use strict';
  const { apply, Promise } = core;
  const add = (target, methods) => {
    for (const name of Object.keys(methods)) {
      if (name in target) continue; // the engine has learned it
      Object.defineProperty(target, name, { value: methods[name], writable: true, configurable: true });
    }
  };
  const TypedArray = Object.getPrototypeOf(Uint8Array);
  const callable = (f) => {
    if (typeof f !== 'function') throw new TypeError(core.show(f) + ' is not a function');
    return f;
  };
  if (!Symbol.asyncIterator) Object.defineProperty(Symbol, 'asyncIterator', { value: Symbol('Symbol.asyncIterator') });
  const { asyncIterator, iterator } = Symbol;

  const group = (items, keyOf, put) => {
    callable(keyOf);
    let i = 0;
    for (const item of items) put(keyOf(item, i++), item);
  };
  add(Object, {
    groupBy(items, keyOf) {
      const groups = Object.create(null);
      group(items, keyOf, (key, item) => {
        const name = typeof key === 'symbol' ? key : core.text(key);
        if (name in groups) groups[name].push(item);
        else groups[name] = [item];
      });
      return groups;
    },
  });
  add(Map, {
    groupBy(items, keyOf) {
      const groups = new Map();
      group(items, keyOf, (key, item) => {
        if (groups.has(key)) groups.get(key).push(item);
        else groups.set(key, [item]);
      });
      return groups;
    },
  });

  add(Promise, {
    withResolvers() {
      let resolve, reject;
      const promise = new this((yes, no) => { resolve = yes; reject = no; });
      return { promise, resolve, reject };
    },
    try(f, ...args) {
      return new this((resolve) => resolve(callable(f)(...args)));
    },
  });

  add(Array, {
    async fromAsync(items, map, self) {
      if (map !== undefined) callable(map);
      const put = async (out, i, value) => { out[i] = map === undefined ? value : await apply(map, self, [value, i]); };
      const out = typeof this === 'function' && this !== Array ? new this() : [];
      const start = items[asyncIterator] || items[iterator];
      let n = 0;
      if (start === undefined || start === null) {
        const size = Math.max(0, Math.trunc(Number(items.length)) || 0);
        for (; n < size; n++) await put(out, n, await items[n]);
      } else {
        const steps = apply(start, items, []);
        for (;;) {
          const step = await steps.next();
          if (step.done) break;
          try {
            await put(out, n++, await step.value);
          } catch (e) {
            if (typeof steps.return === 'function') await steps.return();
            throw e;
          }
        }
      }
      out.length = n;
      return out;
    },
  });

  // The engine's own takes -0, as in sort((a, b) => -f(a, b)), for less than 0.
  for (const [proto, name] of [[Array.prototype, 'sort'], [Array.prototype, 'toSorted'], [TypedArray.prototype, 'sort'], [TypedArray.prototype, 'toSorted']]) {
    const own = proto[name];
    const sort = { [name](order) { return apply(own, this, [typeof order === 'function' ? (a, b) => Number(order(a, b)) || 0 : order]); } };
    Object.defineProperty(proto, name, { value: sort[name], writable: true, configurable: true });
  }
  // The engine's own loses count of the indentation after an empty array or object.
  const { stringify } = core;
  const gapOf = (space) => {
    if (space instanceof Number) space = Number(space);
    else if (space instanceof String) space = core.text(space);
    return typeof space === 'number' ? '          '.slice(0, space >= 1 ? space : 0) : typeof space === 'string' ? space.slice(0, 10) : '';
  };
  const json = {
    stringify(value, replacer, space) {
      const flat = stringify(value, replacer), gap = gapOf(space);
      return flat === undefined || gap === '' ? flat : host.indent(flat, gap);
    },
  };
  Object.defineProperty(JSON, 'stringify', { value: json.stringify, writable: true, configurable: true });
  // The engine's own takes a string for what is no iterable.
  const { from } = TypedArray;
  Object.defineProperty(TypedArray, 'from', {
    value(source, ...rest) { return apply(from, this, [typeof source === 'string' ? [...source] : source, ...rest]); },
    writable: true, configurable: true,
  });

  const wellFormed = (s) => {
    if (s === null || s === undefined) throw new TypeError('not a string');
    return host.wellFormed(core.text(s));
  };
  add(String.prototype, {
    isWellFormed() { return wellFormed(this) === core.text(this); },
    toWellFormed() { return wellFormed(this); },
  });
});
