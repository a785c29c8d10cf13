// URL and URLSearchParams, after the WHATWG standard as far as scripts that call APIs go.
(function (host, core) {
  'use strict';
  const { text, parse, stringify } = core;

  const decode = (s) => host.unescape(s);
  const encode = (s) => host.escape(s);

  class URLSearchParams {
    #pairs = [];
    #changed = () => {};
    constructor(init = '') {
      if (typeof init === 'object' && init !== null) {
        if (init[Symbol.iterator]) for (const [k, v] of init) this.#pairs.push([text(k), text(v)]);
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
    delete(k) { this.#pairs = this.#pairs.filter(([name]) => name !== text(k)); this.#changed(); }
    get(k) { const hit = this.#pairs.find(([name]) => name === text(k)); return hit ? hit[1] : null; }
    getAll(k) { return this.#pairs.filter(([name]) => name === text(k)).map(([, v]) => v); }
    has(k) { return this.#pairs.some(([name]) => name === text(k)); }
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
    constructor(url, base) {
      this.#take(host.url(text(url), base === undefined ? '' : text(base)));
    }
    #take(json) {
      if (json === '') throw new TypeError('Invalid URL');
      this.#parts = parse(json);
      bind(this.#params, this.#parts.search, () => {
        const query = this.#params.toString();
        this.#parts.search = query ? '?' + query : '';
      });
    }
    #change(part, value) {
      const json = host.build(stringify({ ...this.#parts, [part]: text(value) }));
      if (json !== '') this.#take(json); // the standard ignores what cannot be
    }
    static canParse(url, base) {
      return host.url(text(url), base === undefined ? '' : text(base)) !== '';
    }
    get href() {
      const p = this.#parts;
      const user = p.username ? p.username + (p.password ? ':' + p.password : '') + '@' : '';
      return p.protocol + (p.opaque ? '' : '//' + user + this.host) + p.pathname + p.search + p.hash;
    }
    set href(v) { this.#take(host.url(text(v), '')); }
    get origin() { return this.#parts.opaque ? 'null' : this.#parts.protocol + '//' + this.host; }
    get host() { return this.#parts.hostname + (this.#parts.port ? ':' + this.#parts.port : ''); }
    get searchParams() { return this.#params; }
    toString() { return this.href; }
    toJSON() { return this.href; }
    static {
      for (const part of ['protocol', 'username', 'password', 'hostname', 'port', 'pathname', 'search', 'hash']) {
        Object.defineProperty(URL.prototype, part, {
          get() { return this.#parts[part]; },
          set(v) { this.#change(part, v); },
          configurable: true,
          enumerable: true,
        });
      }
    }
  }
  core.define('URL', URL);
  core.define('URLSearchParams', URLSearchParams);
});
