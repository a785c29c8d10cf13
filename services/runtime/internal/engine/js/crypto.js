// Random values from the run's seed, digests and HMAC. Values repeat with the seed, which is what makes a replay
// possible: they are no secrets. What needs a key that a script should not hold is not here.
(function (host, core) {
  'use strict';
  const { bytes, text, refuse } = core;

  const integers = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, BigInt64Array, BigUint64Array];
  const hashes = ['SHA-1', 'SHA-256', 'SHA-384', 'SHA-512'];
  const named = (algorithm) => text(typeof algorithm === 'object' && algorithm !== null ? algorithm.name : algorithm).toUpperCase();
  const hash = (algorithm) => {
    const name = named(algorithm);
    if (!hashes.includes(name)) refuse('NotSupportedError', name + ' is not available: there are ' + hashes.join(', '));
    return name;
  };
  const hmac = (algorithm) => {
    if (named(algorithm) !== 'HMAC') refuse('NotSupportedError', named(algorithm) + ' is not available: there is HMAC');
  };

  const secrets = new WeakMap();
  const get = WeakMap.prototype.get;
  class CryptoKey {
    constructor() { throw new TypeError('Illegal constructor'); }
  }
  const keyFor = (key, usage) => {
    const k = core.apply(get, secrets, [key]);
    if (!k) throw new TypeError('not a CryptoKey');
    if (!k.usages.includes(usage)) refuse('InvalidAccessError', 'the key is not for ' + usage);
    return k;
  };

  const subtle = {
    async digest(algorithm, data) { return host.digest(hash(algorithm), ...bytes(data)); },
    async importKey(format, data, algorithm, extractable, usages) {
      hmac(algorithm);
      if (format !== 'raw') refuse('NotSupportedError', 'keys are imported as "raw"');
      const name = hash(algorithm.hash);
      const list = [...usages];
      for (const u of list) if (u !== 'sign' && u !== 'verify') refuse('SyntaxError', 'a key for HMAC is for sign and verify');
      if (list.length === 0) refuse('SyntaxError', 'a key has to be for sign or verify');
      const secret = host.copy(...bytes(data));
      const size = bytes(secret)[2];
      if (size === 0) refuse('DataError', 'the key is empty');
      const key = Object.create(CryptoKey.prototype);
      const shown = {
        type: 'secret', extractable: Boolean(extractable), usages: ['sign', 'verify'].filter((u) => list.includes(u)),
        algorithm: { name: 'HMAC', length: size * 8, hash: { name } },
      };
      for (const part of Object.keys(shown)) Object.defineProperty(key, part, { value: shown[part] });
      secrets.set(key, { secret, name, usages: list });
      return key;
    },
    async sign(algorithm, key, data) {
      hmac(algorithm);
      const k = keyFor(key, 'sign');
      return host.hmac(k.name, k.secret, ...bytes(data));
    },
    async verify(algorithm, key, signature, data) {
      hmac(algorithm);
      const k = keyFor(key, 'verify');
      return host.hmacEqual(host.copy(...bytes(signature)), host.hmac(k.name, k.secret, ...bytes(data)));
    },
  };
  for (const name of ['encrypt', 'decrypt', 'generateKey', 'deriveKey', 'deriveBits', 'wrapKey', 'unwrapKey', 'exportKey']) {
    subtle[name] = async () => refuse('NotSupportedError', 'crypto.subtle has digest, importKey, sign and verify, not ' + name);
  }

  core.define('CryptoKey', CryptoKey);
  core.define('crypto', Object.freeze({
    subtle: Object.freeze(subtle),
    randomUUID: () => host.uuid(),
    getRandomValues(view) {
      if (!integers.some((Class) => view instanceof Class)) refuse('TypeMismatchError', 'getRandomValues needs an integer array');
      const [buffer, at, size] = bytes(view);
      if (size > 65536) refuse('QuotaExceededError', 'getRandomValues gives at most 65536 bytes');
      host.random(buffer, at, size);
      return view;
    },
  }));
});
