// artifacts keeps named values for later scripts of the session, and for people.
(function (host, core) {
  'use strict';
  const { Promise, stringify, parse, text, fail, bytes, define } = core;
  const { isView } = ArrayBuffer;
  const none = new ArrayBuffer(0);

  class ArtifactError extends Error {}
  Object.defineProperty(ArtifactError.prototype, 'name', { value: 'ArtifactError', writable: true, configurable: true });

  // give makes the type and the bytes of a value, within the promise: what cannot be kept rejects it.
  const ask = (op, name, give, read) =>
    new Promise((resolve, reject) => {
      if (typeof name !== 'string') throw new TypeError('an artifact has a name, which is a string');
      const [type, body] = give();
      host.artifact(op, name, type, body, (json, kind, buffer) => resolve(read(json, kind, buffer)), (code, message) => reject(fail(ArtifactError, code, message)));
    });
  const nothing = () => ['', none];
  const json = (s) => parse(s);
  const value = (s, kind, buffer) => {
    if (kind === 'bytes') return new Uint8Array(buffer);
    if (kind === 'text') return host.decode(buffer, 0, buffer.byteLength, false);
    if (kind === 'json') return parse(host.decode(buffer, 0, buffer.byteLength, false));
    return parse(s); // null: there is none
  };
  // A string is kept as text, bytes as bytes, everything else as JSON.
  const typed = (v) => {
    if (typeof v === 'string') return ['text', host.encode(v)];
    if (v instanceof ArrayBuffer || isView(v)) return ['bytes', host.copy(...bytes(v))];
    const s = stringify(v);
    if (s === undefined) throw new TypeError(typeof v + ' cannot be kept: an artifact is text, JSON or bytes');
    return ['json', host.encode(s)];
  };

  const artifacts = {
    put: (name, v) => ask('put', name, () => typed(v), json),
    get: (name) => ask('get', name, nothing, value),
    list: () => ask('list', '', nothing, json),
    delete: (name) => ask('delete', name, nothing, json),
  };
  define('ArtifactError', ArtifactError);
  Object.defineProperty(globalThis, 'artifacts', { value: Object.freeze(artifacts), writable: false, configurable: false, enumerable: true });
});
