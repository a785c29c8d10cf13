// TextEncoder, TextDecoder and base64.
(function (host, core) {
  'use strict';
  const { bytes, text, refuse } = core;

  core.define('TextEncoder', class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(s = '') { return new Uint8Array(host.encode(text(s))); }
    encodeInto(s, into) {
      if (!(into instanceof Uint8Array)) throw new TypeError('encodeInto needs a Uint8Array');
      const [read, written] = core.parse(host.encodeInto(text(s), ...bytes(into)));
      return { read, written };
    }
  });

  const wide = ['utf-16le', 'utf-16', 'ucs-2', 'unicode', 'csunicode', 'iso-10646-ucs-2', 'unicodefeff'];
  const narrow = ['utf-8', 'utf8', 'unicode-1-1-utf-8', 'unicode11utf8', 'unicode20utf8', 'x-unicode20utf8'];
  core.define('TextDecoder', class TextDecoder {
    #wide;
    #fatal;
    #keepMark;
    #rest = new ArrayBuffer(0); // of a stream: the beginning of a character
    #begun = false;
    constructor(label = 'utf-8', options = {}) {
      const name = text(label).trim().toLowerCase();
      this.#wide = wide.includes(name);
      if (!this.#wide && !narrow.includes(name)) throw new RangeError('there are utf-8 and utf-16le, not ' + text(label));
      this.#fatal = Boolean(options.fatal);
      this.#keepMark = Boolean(options.ignoreBOM);
    }
    get encoding() { return this.#wide ? 'utf-16le' : 'utf-8'; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepMark; }
    decode(input, options = {}) {
      const stream = Boolean(options.stream);
      const whole = host.join(this.#rest, ...(input === undefined ? [new ArrayBuffer(0), 0, 0] : bytes(input)));
      const size = bytes(whole)[2];
      const keep = stream ? host.incomplete(whole, 0, size, this.#wide) : 0;
      this.#rest = host.copy(whole, size - keep, keep);
      let s = host.decode(whole, 0, size - keep, this.#fatal, this.#wide);
      if (!this.#begun && !this.#keepMark && core.codeAt(s, 0) === 0xfeff) s = s.slice(1);
      this.#begun = stream && (this.#begun || size > keep);
      return s;
    }
  });

  const given = (name, args) => {
    if (args.length === 0) throw new TypeError(name + ' needs a string');
    return text(args[0]);
  };
  const { define } = core;
  define('btoa', (...args) => {
    const out = host.btoa(given('btoa', args));
    return out === undefined ? refuse('InvalidCharacterError', 'btoa takes characters up to U+00FF; encode the text with TextEncoder first') : out;
  });
  define('atob', (...args) => {
    const out = host.atob(given('atob', args));
    return out === undefined ? refuse('InvalidCharacterError', 'atob: the text is not base64') : out;
  });
});
