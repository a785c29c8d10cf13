// tools.<connection>.<tool>(args) calls a granted tool and gives a promise of its result.
(function (host, core) {
  'use strict';
  const { Promise, stringify, parse, fail, ToolError } = core;

  const call = (name, args) => {
    if (args.length > 1) throw new TypeError(name + ' takes one argument, an object');
    return new Promise((resolve, reject) => {
      const json = args.length === 0 || args[0] === undefined ? '{}' : stringify(args[0]);
      if (json === undefined) throw new TypeError('the argument of ' + name + ' is not JSON');
      host.call(
        name,
        json,
        (result) => resolve(parse(result)),
        (code, message) => reject(fail(ToolError, code, message)),
      );
    });
  };

  const refuse = () => {
    throw new TypeError('tools is not an object to list or change: call tools.<connection>.<tool>(args)');
  };
  // then would make `await tools` call a tool, toJSON would make console.log do it.
  const silent = (key) => typeof key !== 'string' || key === 'then' || key === 'toJSON' || key === 'constructor' || key === 'prototype';
  const traps = {
    ownKeys: refuse, set: refuse, defineProperty: refuse, deleteProperty: refuse, setPrototypeOf: refuse,
    preventExtensions: refuse, construct: refuse,
    has: (_, key) => !silent(key),
    getPrototypeOf: () => null,
  };
  const noArgs = [];

  const connection = (name) => {
    const known = Object.create(null);
    return new Proxy((...args) => call(name, args), {
      __proto__: null,
      ...traps,
      apply: (_, self, args) => call(name, args || noArgs),
      get(_, key) {
        if (silent(key)) return undefined;
        return (known[key] ||= Object.freeze((...args) => call(name + '.' + key, args)));
      },
    });
  };

  // tools.search(query) and tools.describe(name) tell what may be called. A connection of such a name is reached all the
  // same: tools.search.find({}) is a call of its tool, as only what has a connection and a tool's name is one.
  const look = (query, limit, tool, what) =>
    new Promise((resolve, reject) => {
      if (typeof (query || tool) !== 'string' || (query || tool) === '') throw new TypeError(what);
      host.search(query, limit, tool, (result) => resolve(parse(result)), (code, message) => reject(fail(ToolError, code, message)));
    });
  const built = (name, f) => {
    const of = connection(name);
    return new Proxy(f, { __proto__: null, ...traps, apply: (_, self, args) => core.apply(f, undefined, args), get: (_, key) => of[key] });
  };
  const connections = Object.create(null);
  connections.search = built('search', (query, options) =>
    look(query, (options && options.limit) | 0, '', 'tools.search takes words, such as "open invoices"'));
  connections.describe = built('describe', (name) => look('', 0, name, 'tools.describe takes the name of a tool, such as "github.get_issue"'));
  const tools = new Proxy(Object.create(null), {
    __proto__: null,
    ...traps,
    get(_, key) {
      if (silent(key)) return undefined;
      return (connections[key] ||= connection(key));
    },
  });
  Object.defineProperty(globalThis, 'tools', { value: tools, writable: false, configurable: false, enumerable: true });
});
