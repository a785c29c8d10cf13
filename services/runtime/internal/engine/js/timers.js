// Timers wait in real time. The clock that a script reads moves only with them, so that it reads the same on replay.
(function (host, core) {
  'use strict';
  const start = (callback, delay, repeat, args) => {
    if (typeof callback !== 'function') throw new TypeError('a timer needs a function');
    const ms = Number(delay);
    return host.timer(() => core.apply(callback, undefined, args), ms > 0 ? ms : 0, repeat);
  };
  const stop = (id) => host.clear(typeof id === 'number' ? id : 0);
  core.define('setTimeout', (callback, delay, ...args) => start(callback, delay, false, args));
  core.define('setInterval', (callback, delay, ...args) => start(callback, delay, true, args));
  core.define('clearTimeout', stop);
  core.define('clearInterval', stop);

  const settled = core.Promise.resolve();
  core.define('queueMicrotask', (callback) => {
    if (typeof callback !== 'function') throw new TypeError('queueMicrotask needs a function');
    core.then(settled, () => callback());
  });
  core.define('performance', Object.freeze({ now: () => host.elapsed(), timeOrigin: Date.now() }));
});
