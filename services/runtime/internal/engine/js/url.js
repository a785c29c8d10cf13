// URL and URLSearchParams, after the WHATWG standard.
(function (host, core) {
  'use strict';
  const { text, parse } = core;

  const decode = (s) => host.unescape(s);
  const encode = (s) => host.escape(s);

  class URLSearchParams {
    #pairs = [];
    #changed = () => {};
    constructor(init = '') {
      if (typeof init === 'object' && init !== null) {
        if (init[Symbol.iterator]) {
          for (const pair of init) {
            const [k, v, ...more] = pair;
            if (pair.length !== 2 && (more.length > 0 || [...pair].length !== 2)) throw new TypeError('each pair is a name and a value');
            this.#pairs.push([text(k), text(v)]);
          }
        }
        else for (const k of Object.keys(init)) this.#pairs.push([k, text(init[k])]);
        return;
      }
      this.#read(text(init));
    }
    #read(query) {
      this.#pairs = [];
      for (const part of query.replace(/^\?/, '').split('&')) {
        if (!part) continue;
        const eq = part.indexOf('=');
        this.#pairs.push(eq < 0 ? [decode(part), ''] : [decode(part.slice(0, eq)), decode(part.slice(eq + 1))]);
      }
    }
    static bind(params, query, changed) {
      params.#read(query);
      params.#changed = changed;
    }
    append(k, v) { this.#pairs.push([text(k), text(v)]); this.#changed(); }
    delete(k, v) {
      this.#pairs = this.#pairs.filter(([name, value]) => name !== text(k) || (v !== undefined && value !== text(v)));
      this.#changed();
    }
    get(k) { const hit = this.#pairs.find(([name]) => name === text(k)); return hit ? hit[1] : null; }
    getAll(k) { return this.#pairs.filter(([name]) => name === text(k)).map(([, v]) => v); }
    has(k, v) { return this.#pairs.some(([name, value]) => name === text(k) && (v === undefined || value === text(v))); }
    set(k, v) {
      const at = this.#pairs.findIndex(([name]) => name === text(k));
      if (at < 0) this.#pairs.push([text(k), text(v)]);
      else {
        this.#pairs[at][1] = text(v);
        this.#pairs = this.#pairs.filter(([name], i) => i <= at || name !== text(k));
      }
      this.#changed();
    }
    sort() { this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)); this.#changed(); }
    forEach(f, self) { for (const [k, v] of this.#pairs) f.call(self, v, k, this); }
    *entries() { for (const [k, v] of this.#pairs) yield [k, v]; }
    *keys() { for (const [k] of this.#pairs) yield k; }
    *values() { for (const [, v] of this.#pairs) yield v; }
    [Symbol.iterator]() { return this.entries(); }
    get size() { return this.#pairs.length; }
    toString() { return this.#pairs.map(([k, v]) => encode(k) + '=' + encode(v)).join('&'); }
  }
  const { bind } = URLSearchParams;
  delete URLSearchParams.bind;

  class URL {
    #parts;
    #params = new URLSearchParams();
    constructor(...args) {
      if (args.length === 0) throw new TypeError('URL needs an address');
      this.#take(host.url(text(args[0]), args[1] === undefined ? undefined : text(args[1])));
    }
    #take(json) {
      if (json === '') throw new TypeError('Invalid URL');
      this.#parts = parse(json);
      bind(this.#params, this.#parts.search, () => {
        this.#parts = parse(host.changeURL(this.#parts.href, 'search', this.#params.toString()));
      });
    }
    static canParse(url, base) {
      return host.url(text(url), base === undefined ? undefined : text(base)) !== '';
    }
    static parse(url, base) {
      return URL.canParse(url, base) ? new URL(url, base) : null;
    }
    get href() { return this.#parts.href; }
    set href(v) { this.#take(host.url(text(v), undefined)); }
    get origin() { return this.#parts.origin; }
    get searchParams() { return this.#params; }
    toString() { return this.href; }
    toJSON() { return this.href; }
    static {
      for (const part of ['protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash']) {
        Object.defineProperty(URL.prototype, part, {
          get() { return this.#parts[part]; },
          set(v) { this.#take(host.changeURL(this.#parts.href, part, text(v))); },
          configurable: true,
          enumerable: true,
        });
      }
    }
  }
  for (const Class of [URL, URLSearchParams]) Object.defineProperty(Class.prototype, Symbol.toStringTag, { value: Class.name, configurable: true });
  core.define('URL', URL);
  core.define('URLSearchParams', URLSearchParams);
});
