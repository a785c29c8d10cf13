// structuredClone for the values that scripts hold: plain objects, arrays, Map, Set, Date, RegExp, errors, buffers.
(function (host, core) {
  'use strict';
  const refuse = (value) => core.refuse('DataCloneError', typeof value + ' cannot be cloned');
  const errors = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, __proto__: null };
  const clone = (value, seen) => {
    if (typeof value === 'function' || typeof value === 'symbol') refuse(value);
    if (typeof value !== 'object' || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => {
      seen.set(value, copy);
      return copy;
    };
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof String || value instanceof Number || value instanceof Boolean || value instanceof BigInt) {
      return keep(Object(value.valueOf()));
    }
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (value instanceof DataView) return keep(new DataView(clone(value.buffer, seen), value.byteOffset, value.byteLength));
    if (ArrayBuffer.isView(value)) {
      return keep(new value.constructor(clone(value.buffer, seen), value.byteOffset, value.length));
    }
    if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) refuse(value);
    if (value instanceof Map) {
      const copy = keep(new Map());
      for (const [k, v] of value) copy.set(clone(k, seen), clone(v, seen));
      return copy;
    }
    if (value instanceof Set) {
      const copy = keep(new Set());
      for (const v of value) copy.add(clone(v, seen));
      return copy;
    }
    if (value instanceof Error) {
      const Class = errors[value.name] || Error;
      const copy = keep(new Class(value.message));
      if (value.cause !== undefined) copy.cause = clone(value.cause, seen);
      return copy;
    }
    const copy = keep(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of Object.keys(value)) copy[key] = clone(value[key], seen);
    return copy;
  };
  core.define('structuredClone', (value) => clone(value, new Map()));
});
