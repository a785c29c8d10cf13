// The way in and the way out. A script that gives a function means its result; the value leaves as JSON that was made
// here, where the clock and the limits hold.
(function (host, core) {
  'use strict';
  const { stringify, then, describe } = core;
  const start = (main) => {
    const value = then(main(), (v) => (typeof v === 'function' ? v() : v));
    const json = then(value, (v) => stringify(v));
    then(json, (s) => host.done(s === undefined ? 'null' : s), (e) => describe(e, host.fail));
  };
  return { start, describe };
});
