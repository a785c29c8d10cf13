// Text does not become code at run time, and a length that cannot be is refused before it is tried. The jail does not
// depend on any of this: it spares the process a death, and the author a puzzle.
(function (host, core) {
  'use strict';
  const { apply } = core;

  const refuse = (name) =>
    function () {
      throw new EvalError(name + ' is disabled: write the code itself instead of making it from text');
    };
  for (const sample of [function () {}, function* () {}, async function () {}]) {
    const proto = Object.getPrototypeOf(sample);
    const stub = refuse('Function');
    Object.defineProperty(stub, 'prototype', { value: proto });
    Object.defineProperty(proto, 'constructor', { value: stub, writable: false, configurable: false });
  }
  core.define('Function', Function.prototype.constructor);
  core.define('eval', refuse('eval'));

  // The engine answers an impossible length with a fault of its own, which catch cannot see.
  const longest = 2 ** 30;
  const { repeat, padStart, padEnd } = String.prototype;
  const fits = (n) => {
    if (n > longest) throw new RangeError('Invalid string length');
    host.reserve(n);
  };
  const wrapped = {
    repeat(count) {
      if (this === null || this === undefined) return apply(repeat, this, [count]);
      const s = core.text(this);
      const n = Number(count);
      if (n > 0) fits(s.length * n);
      return apply(repeat, s, [n]);
    },
    padStart(length, fill) {
      const n = Number(length);
      if (n > 0) fits(n);
      return apply(padStart, this, [n, fill]);
    },
    padEnd(length, fill) {
      const n = Number(length);
      if (n > 0) fits(n);
      return apply(padEnd, this, [n, fill]);
    },
  };
  for (const name of ['repeat', 'padStart', 'padEnd']) {
    Object.defineProperty(String.prototype, name, { value: wrapped[name], writable: true, configurable: true });
  }

  // Patterns made from text get the same treatment as the literals, which are looked at before the script starts.
  const Native = RegExp;
  const source = Object.getOwnPropertyDescriptor(Native.prototype, 'source').get;
  const fix = (args) => {
    const given = args[0];
    const isRegExp = given instanceof Native;
    const pattern = isRegExp ? apply(source, given, []) : given === undefined ? '' : core.text(given);
    const flags = args[1] !== undefined ? core.text(args[1]) : isRegExp ? core.text(given.flags) : '';
    if (!core.contains(flags, 'u') || !(core.contains(pattern, '\\p') || core.contains(pattern, '\\P'))) return args;
    return [host.pattern(pattern), flags];
  };
  function Guarded(pattern, flags) {
    const args = fix([pattern, flags]);
    if (new.target === undefined) return apply(Native, undefined, args);
    return Reflect.construct(Native, args, new.target === Guarded ? Native : new.target);
  }
  Object.defineProperty(Guarded, 'name', { value: 'RegExp' });
  Object.defineProperty(Guarded, 'prototype', { value: Native.prototype, writable: false });
  Object.defineProperty(Guarded, Symbol.species, Object.getOwnPropertyDescriptor(Native, Symbol.species));
  delete Native.prototype.compile; // it would take a pattern past the look
  Object.defineProperty(Native.prototype, 'constructor', { value: Guarded, writable: true, configurable: true });
  core.define('RegExp', Guarded);
});
