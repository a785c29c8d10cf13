// console writes lines to the run's log.
(function (host, core) {
  'use strict';
  const line = (args) => {
    let out = '';
    for (let i = 0; i < args.length; i++) out += (i ? ' ' : '') + core.show(args[i]);
    return out;
  };
  const console = {};
  for (const [method, level] of [
    ['debug', 'debug'], ['log', 'info'], ['info', 'info'], ['table', 'info'], ['dir', 'info'],
    ['warn', 'warn'], ['error', 'error'], ['trace', 'debug'],
  ]) {
    console[method] = (...args) => host.log(level, line(args));
  }
  console.assert = (ok, ...args) => {
    if (!ok) host.log('error', 'Assertion failed' + (args.length ? ': ' + line(args) : ''));
  };
  for (const method of ['group', 'groupEnd', 'time', 'timeEnd', 'count']) console[method] = () => {};
  core.define('console', console);
});
