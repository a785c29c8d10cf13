// Text does not become code at run time, and a length that cannot be is refused before it is tried. The jail does not
// depend on any of this: it spares the process a death, and the author a puzzle.
(function (host, core) {
  'use strict';
  const { apply } = core;

  const refuse = (name) =>
    function () {
      throw new EvalError(name + ' is disabled: write the code itself instead of making it from text');
    };
  for (const [name, sample] of [['Function', function () {}], ['GeneratorFunction', function* () {}], ['AsyncFunction', async function () {}]]) {
    const proto = Object.getPrototypeOf(sample);
    const stub = refuse(name);
    Object.defineProperty(stub, 'name', { value: name });
    Object.defineProperty(stub, 'prototype', { value: proto });
    Object.defineProperty(proto, 'constructor', { value: stub, writable: false, configurable: false });
  }
  core.define('Function', Function.prototype.constructor);
  core.define('eval', refuse('eval'));
  delete globalThis.GoError; // of the engine's, and no script's business

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
  // shown is a pattern as it was written: some have a mark of ours before them.
  const shown = (pattern) => (pattern.length > 4 && core.indexOf(pattern, '(?=)') === 0 ? core.slice(pattern, 4) : pattern);
  Object.defineProperty(Native.prototype, 'source', { get() { return shown(apply(source, this, [])); }, configurable: true });
  const spelled = { toString() { return '/' + core.text(this.source) + '/' + core.text(this.flags); } };
  Object.defineProperty(Native.prototype, 'toString', { value: spelled.toString, writable: true, configurable: true });
  const fix = (args) => {
    const given = args[0];
    const isRegExp = given instanceof Native;
    const pattern = isRegExp ? apply(source, given, []) : given === undefined ? '' : core.text(given);
    const flags = args[1] !== undefined ? core.text(args[1]) : isRegExp ? core.text(given.flags) : '';
    for (const flag of ['d', 'v']) {
      if (core.contains(flags, flag)) {
        throw core.fail(SyntaxError, 'unsupported_regexp', 'the flag ' + flag + ' of regular expressions is not available: there are g, i, m, s, u and y');
      }
    }
    if (!core.contains(flags, 'u') && !core.contains(flags, 'g')) return [isRegExp ? shown(pattern) : args[0], args[1]];
    return [host.pattern(isRegExp ? shown(pattern) : pattern, flags), flags];
  };
  function Guarded(pattern, flags) {
    if (new.target === undefined && flags === undefined && pattern instanceof Native && pattern.constructor === Guarded) return pattern;
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
