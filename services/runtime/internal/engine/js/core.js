// What the other preludes need of the language, taken before a script can change it. Strings, numbers and callbacks
// are all that passes between JavaScript and Go: every other value could run the script's code on the Go side.
(function (host) {
  'use strict';
  const { apply, ownKeys } = Reflect;
  const { stringify, parse } = JSON;
  const text = String;
  const NativePromise = Promise;
  const { then } = Promise.prototype;
  const { get, set } = WeakMap.prototype;
  const { charCodeAt, indexOf, slice } = String.prototype;

  const define = (name, value) =>
    Object.defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });

  // codes brands the errors that were made here, so that a script cannot pass its own error off as ours.
  const codes = new WeakMap();
  const fail = (Class, code, message) => {
    const e = new Class(message);
    e.code = code;
    apply(set, codes, [e, code]);
    return e;
  };

  class ToolError extends Error {}
  class FetchError extends Error {}
  for (const Class of [ToolError, FetchError]) {
    Object.defineProperty(Class.prototype, 'name', { value: Class.name, writable: true, configurable: true });
    define(Class.name, Class);
  }

  // careful runs f, which may touch the script's own objects, and gives a string whatever it does.
  const careful = (f) => {
    try {
      const v = f();
      return v === undefined || v === null ? '' : text(v);
    } catch {
      return '';
    }
  };

  // isError asks a question that a proxy may answer with an exception.
  const isError = (value) => {
    try {
      return typeof value === 'object' && value !== null && value instanceof Error;
    } catch {
      return false;
    }
  };

  const show = (value) => {
    if (typeof value === 'string') return value;
    if (typeof value === 'bigint') return text(value) + 'n';
    if (typeof value === 'function') return '[function ' + careful(() => value.name) + ']';
    if (typeof value !== 'object' || value === null) return careful(() => text(value));
    if (isError(value)) return careful(() => value.stack || value);
    const json = careful(() => stringify(value, (_, v) => (typeof v === 'bigint' ? text(v) + 'n' : v)));
    return json || careful(() => text(value)) || '[object]';
  };

  const describe = (e, report) => {
    if (!isError(e)) {
      report('', '', 'thrown: ' + show(e), '');
      return;
    }
    report(
      careful(() => apply(get, codes, [e])),
      careful(() => e.name),
      careful(() => e.message),
      careful(() => e.stack),
    );
  };

  // bytes gives [buffer, offset, length] of a buffer or a view on one.
  const viewProto = Object.getPrototypeOf(Uint8Array.prototype);
  const getter = (proto, name) => Object.getOwnPropertyDescriptor(proto, name).get;
  const of = { buffer: getter(viewProto, 'buffer'), at: getter(viewProto, 'byteOffset'), size: getter(viewProto, 'byteLength') };
  const ofData = { buffer: getter(DataView.prototype, 'buffer'), at: getter(DataView.prototype, 'byteOffset'), size: getter(DataView.prototype, 'byteLength') };
  const { isView } = ArrayBuffer;
  const bufferSize = getter(ArrayBuffer.prototype, 'byteLength');
  const bytes = (v) => {
    if (v instanceof ArrayBuffer) return [v, 0, apply(bufferSize, v, [])];
    if (!isView(v)) throw new TypeError('expected an ArrayBuffer or a view on one');
    const from = v instanceof DataView ? ofData : of;
    return [apply(from.buffer, v, []), apply(from.at, v, []), apply(from.size, v, [])];
  };

  return {
    apply, ownKeys, stringify, parse, text, Promise: NativePromise, define, fail, show, describe, bytes, ToolError, FetchError,
    contains: (s, part) => apply(indexOf, s, [part]) >= 0,
    indexOf: (s, part) => apply(indexOf, s, [part]),
    slice: (s, from, to) => apply(slice, s, [from, to]),
    codeAt: (s, i) => apply(charCodeAt, s, [i]),
    then: (promise, ok, no) => apply(then, promise, [ok, no]),
  };
});
