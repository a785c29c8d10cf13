// TextEncoder, TextDecoder, base64, and random values from the run's seed.
(function (host, core) {
  'use strict';
  const { bytes, text } = core;

  core.define('TextEncoder', class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(s = '') { return new Uint8Array(host.encode(text(s))); }
  });

  core.define('TextDecoder', class TextDecoder {
    #fatal;
    #keepMark;
    constructor(label = 'utf-8', options = {}) {
      const name = text(label).toLowerCase();
      if (name !== 'utf-8' && name !== 'utf8') throw new RangeError('only utf-8 is supported, not ' + text(label));
      this.#fatal = Boolean(options.fatal);
      this.#keepMark = Boolean(options.ignoreBOM);
    }
    get encoding() { return 'utf-8'; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepMark; }
    decode(input) {
      if (input === undefined) return '';
      const s = host.decode(...bytes(input), this.#fatal);
      return !this.#keepMark && core.codeAt(s, 0) === 0xfeff ? s.slice(1) : s;
    }
  });

  core.define('btoa', (s) => host.btoa(text(s)));
  core.define('atob', (s) => host.atob(text(s)));

  // Values repeat with the seed, which is what makes a replay possible: they are no secrets.
  core.define('crypto', Object.freeze({
    randomUUID: () => host.uuid(),
    getRandomValues(view) {
      const [buffer, at, size] = bytes(view);
      if (view instanceof Float32Array || view instanceof Float64Array || view instanceof DataView || view instanceof ArrayBuffer) {
        throw new TypeError('getRandomValues needs an integer array');
      }
      if (size > 65536) throw new RangeError('getRandomValues gives at most 65536 bytes');
      host.random(buffer, at, size);
      return view;
    },
  }));
});
