// artifacts keeps named values for later scripts of the session, and for people.
(function (host, core) {
  'use strict';
  const { Promise, stringify, parse, text, fail, bytes, define } = core;
  const { isView } = ArrayBuffer;
  const none = new ArrayBuffer(0);

  class ArtifactError extends Error {}
  Object.defineProperty(ArtifactError.prototype, 'name', { value: 'ArtifactError', writable: true, configurable: true });

  const ask = (op, name, type, body, read) =>
    new Promise((resolve, reject) => {
      host.artifact(op, name, type, body, (json, kind, buffer) => resolve(read(json, kind, buffer)), (code, message) => reject(fail(ArtifactError, code, message)));
    });
  const json = (s) => parse(s);
  const named = (name) => {
    if (typeof name !== 'string') throw new TypeError('an artifact has a name, which is a string');
    return name;
  };
  const value = (s, kind, buffer) => {
    if (kind === 'bytes') return new Uint8Array(buffer);
    if (kind === 'text') return host.decode(buffer, 0, buffer.byteLength, false);
    if (kind === 'json') return parse(host.decode(buffer, 0, buffer.byteLength, false));
    return parse(s); // null: there is none
  };

  const artifacts = {
    // A string is kept as text, bytes as bytes, everything else as JSON.
    async put(name, v) {
      named(name);
      if (typeof v === 'string') return ask('put', name, 'text', host.encode(v), json);
      if (v instanceof ArrayBuffer || isView(v)) return ask('put', name, 'bytes', host.copy(...bytes(v)), json);
      const s = stringify(v);
      if (s === undefined) throw new TypeError(typeof v + ' cannot be kept: an artifact is text, JSON or bytes');
      return ask('put', name, 'json', host.encode(s), json);
    },
    async get(name) { return ask('get', named(name), '', none, value); },
    async list() { return ask('list', '', '', none, json); },
    async delete(name) { return ask('delete', named(name), '', none, json); },
  };
  define('ArtifactError', ArtifactError);
  Object.defineProperty(globalThis, 'artifacts', { value: Object.freeze(artifacts), writable: false, configurable: false, enumerable: true });
});
