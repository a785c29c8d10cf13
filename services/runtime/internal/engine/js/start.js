// The way in and the way out. A script that gives a function means its result; the value leaves as JSON that was made
// here, where the clock and the limits hold.
(function (host, core) {
  'use strict';
  const { stringify, parse, ownKeys, then, describe } = core;
  const { freeze, defineProperty } = Object;
  const start = (main) => {
    const value = then(main(), (v) => (typeof v === 'function' ? v() : v));
    const json = then(value, (v) => stringify(v));
    then(json, (s) => host.done(s === undefined ? 'null' : s), (e) => describe(e, host.fail));
  };
  // input is what the script was given to work on, '' for nothing. It stays as it was given.
  const input = (json) => {
    const value = json === '' ? undefined : parse(json);
    const inside = [value];
    for (let i = 0; i < inside.length; i++) {
      const v = inside[i];
      if (typeof v !== 'object' || v === null) continue;
      for (const k of ownKeys(v)) inside[inside.length] = v[k];
      freeze(v);
    }
    defineProperty(globalThis, 'input', { value, writable: false, configurable: false, enumerable: true });
  };
  return { start, describe, input };
});
