// fetch, and as much of Headers, Response and AbortController as reading an API takes. The request is made, and
// judged, outside the worker.
(function (host, core) {
  'use strict';
  const { Promise, text, parse, stringify, fail, FetchError, bytes } = core;

  const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
  const name = (n) => {
    const s = text(n);
    if (!token.test(s)) throw new TypeError('invalid header name: ' + stringify(s));
    return s.toLowerCase();
  };
  const value = (v) => {
    const s = text(v);
    for (let i = 0; i < s.length; i++) {
      const c = core.codeAt(s, i);
      if (c === 10 || c === 13 || c === 0) throw new TypeError('a header value must not hold a line break');
    }
    return s.trim();
  };

  class Headers {
    #lines = new Map();
    constructor(init) {
      if (init === undefined || init === null) return;
      const lines = init[Symbol.iterator] ? init : Object.entries(init);
      for (const [k, v] of lines) this.append(k, v);
    }
    append(k, v) {
      const n = name(k);
      const old = this.#lines.get(n);
      this.#lines.set(n, old === undefined ? value(v) : old + ', ' + value(v));
    }
    set(k, v) { this.#lines.set(name(k), value(v)); }
    get(k) { const v = this.#lines.get(name(k)); return v === undefined ? null : v; }
    has(k) { return this.#lines.has(name(k)); }
    delete(k) { this.#lines.delete(name(k)); }
    forEach(f, self) { for (const [k, v] of this) f.call(self, v, k, this); }
    *entries() { for (const k of [...this.#lines.keys()].sort()) yield [k, this.#lines.get(k)]; }
    *keys() { for (const [k] of this.entries()) yield k; }
    *values() { for (const [, v] of this.entries()) yield v; }
    [Symbol.iterator]() { return this.entries(); }
  }

  class Response {
    #body;
    #used = false;
    constructor(body = null, init = {}) {
      this.#body = body === null ? new ArrayBuffer(0) : typeof body === 'string' ? host.encode(body) : host.copy(...bytes(body));
      this.status = init.status === undefined ? 200 : Number(init.status);
      this.statusText = init.statusText === undefined ? '' : text(init.statusText);
      this.url = init.url === undefined ? '' : text(init.url);
      this.headers = new Headers(init.headers);
    }
    get ok() { return this.status >= 200 && this.status < 300; }
    get bodyUsed() { return this.#used; }
    #take() {
      if (this.#used) throw new TypeError('the body was read already');
      this.#used = true;
      return this.#body;
    }
    async arrayBuffer() { return this.#take(); }
    async bytes() { return new Uint8Array(this.#take()); }
    #type() { return this.headers.get('content-type') || ''; }
    // text goes by the charset of the content type, where a browser takes everything for UTF-8.
    async text() { return host.text(...bytes(this.#take()), this.#type()); }
    // json says where and what is wrong: an error page in HTML, most often.
    async json() {
      const b = bytes(this.#take());
      const s = host.decode(...b, false);
      try {
        return parse(core.codeAt(s, 0) === 0xfeff ? s.slice(1) : s);
      } catch (e) {
        const why = host.notJSON(...b);
        if (why === '') throw e;
        throw new SyntaxError('the response is not JSON: ' + why + '; its content-type is ' + (stringify(this.#type()) || 'none') + ' and it begins with ' + stringify(s.slice(0, 60)));
      }
    }
    // markdown and plain give HTML as text for a reader; what is text already stays as it is.
    async markdown() { return host.markdown(...bytes(this.#take()), this.#type(), this.url); }
    async plain() { return host.plain(...bytes(this.#take()), this.#type()); }
  }

  const abort = (message, as) => {
    const e = new Error(message);
    e.name = as;
    return e;
  };
  class AbortSignal {
    #listeners = [];
    aborted = false;
    reason = undefined;
    onabort = null;
    addEventListener(type, f) { if (type === 'abort') this.#listeners.push(f); }
    removeEventListener(type, f) { this.#listeners = this.#listeners.filter((l) => l !== f); }
    throwIfAborted() { if (this.aborted) throw this.reason; }
    static timeout(ms) {
      const signal = new AbortSignal();
      setTimeout(() => fire(signal, abort('the time is over', 'TimeoutError')), ms);
      return signal;
    }
    static abort(reason) {
      const signal = new AbortSignal();
      fire(signal, reason);
      return signal;
    }
    static fire(signal, reason) {
      if (signal.aborted) return;
      signal.aborted = true;
      signal.reason = reason === undefined ? abort('aborted', 'AbortError') : reason;
      const event = { type: 'abort', target: signal };
      if (typeof signal.onabort === 'function') signal.onabort(event);
      for (const f of signal.#listeners) f.call(signal, event);
    }
  }
  const { fire } = AbortSignal;
  delete AbortSignal.fire;
  const { setTimeout } = globalThis;
  class AbortController {
    signal = new AbortSignal();
    abort(reason) { fire(this.signal, reason); }
  }

  const body = (b, headers) => {
    if (b === undefined || b === null) return new ArrayBuffer(0);
    if (b instanceof URLSearchParams) {
      if (!headers.has('content-type')) headers.set('content-type', 'application/x-www-form-urlencoded;charset=UTF-8');
      return host.encode(b.toString());
    }
    if (typeof b === 'string') {
      if (!headers.has('content-type')) headers.set('content-type', 'text/plain;charset=UTF-8');
      return host.encode(b);
    }
    if (b instanceof ArrayBuffer || ArrayBuffer.isView(b)) return host.copy(...bytes(b));
    throw new TypeError('a body is a string, URLSearchParams or bytes; use JSON.stringify for an object');
  };

  core.define('fetch', (input, init = {}) =>
    new Promise((resolve, reject) => {
      const headers = new Headers(init.headers);
      const method = init.method === undefined ? 'GET' : text(init.method).toUpperCase();
      if (!token.test(method)) throw new TypeError('invalid method: ' + stringify(method));
      if (init.redirect !== undefined && init.redirect !== 'follow') throw new TypeError('redirects are followed, at most 5; redirect: ' + stringify(text(init.redirect)) + ' is not there');
      const payload = body(init.body, headers);
      if (init.signal) {
        if (init.signal.aborted) return reject(init.signal.reason);
        init.signal.addEventListener('abort', () => reject(init.signal.reason));
      }
      host.fetch(
        method,
        text(input),
        stringify([...headers].map(([n, v]) => ({ name: n, value: v }))),
        payload,
        (meta, buffer) => {
          const m = parse(meta);
          resolve(new Response(buffer, {
            status: m.status,
            statusText: m.status_text,
            url: m.url,
            headers: (m.header || []).map((f) => [f.name, f.value]),
          }));
        },
        (code, message) => reject(fail(FetchError, code, message)),
      );
    }));
  core.define('Headers', Headers);
  core.define('Response', Response);
  core.define('AbortController', AbortController);
  core.define('AbortSignal', AbortSignal);
});
