// What the engine's regular expressions get wrong or do not have.
(function (host, core) {
  'use strict';
  const { apply, text } = core;
  const proto = RegExp.prototype;
  const { exec } = proto;
  const own = proto[Symbol.replace];
  const { slice } = String.prototype;
  const flagsOf = Object.getOwnPropertyDescriptor(proto, 'flags').get;

  // expand writes a replacement's $ for what they stand for.
  const expand = (template, m, s) => {
    let out = '';
    for (let i = 0; i < template.length; i++) {
      const c = template[i], next = template[i + 1];
      if (c !== '$' || next === undefined) { out += c; continue; }
      const one = next >= '0' && next <= '9' ? Number(next) : -1;
      const second = template[i + 2];
      const two = one >= 0 && second >= '0' && second <= '9' ? one * 10 + Number(second) : -1;
      const end = next === '<' && m.groups ? template.indexOf('>', i) : -1;
      if (next === '$') out += '$';
      else if (next === '&') out += m[0];
      else if (next === '`') out += apply(slice, s, [0, m.index]);
      else if (next === "'") out += apply(slice, s, [m.index + m[0].length]);
      else if (two > 0 && two < m.length) { out += m[two] === undefined ? '' : m[two]; i++; }
      else if (one > 0 && one < m.length) out += m[one] === undefined ? '' : m[one];
      else if (end > 0) {
        const group = m.groups[template.slice(i + 2, end)];
        out += group === undefined ? '' : group;
        i = end;
        continue;
      } else { out += c; continue; }
      i++;
    }
    return out;
  };

  // A pattern in the engine with the flag u replaces every match, and one with the flag y a match that is further on.
  const replaced = {
    [Symbol.replace](string, by) {
      const flags = apply(flagsOf, this, []);
      if (core.contains(flags, 'g') || !(core.contains(flags, 'u') || core.contains(flags, 'y'))) return apply(own, this, [string, by]);
      const s = text(string), m = apply(exec, this, [s]);
      if (m === null) return typeof by === 'function' ? s : (text(by), s);
      const named = m.groups === undefined ? [] : [m.groups];
      const put = typeof by === 'function' ? text(apply(by, undefined, [...m, m.index, s, ...named])) : expand(text(by), m, s);
      return apply(slice, s, [0, m.index]) + put + apply(slice, s, [m.index + m[0].length]);
    },
  }[Symbol.replace];
  // Where a pattern can match nothing, or has characters of two units, the engine splits in other places. This way takes a
  // search from each match on, which is too slow for the rest.
  const ownSplit = proto[Symbol.split];
  const pairs = /[\ud800-\udbff]/;
  const split = {
    [Symbol.split](string, limit) {
      const flags = apply(flagsOf, this, []), pattern = text(this.source);
      if (apply(exec, pairs, [pattern]) === null && apply(exec, new RegExp(this, flags.replace(/[gy]/g, '')), ['']) === null) {
        return apply(ownSplit, this, [string, limit]);
      }
      const s = text(string), most = limit === undefined ? 2 ** 32 - 1 : limit >>> 0, out = [];
      if (most === 0) return out;
      const search = new RegExp(this, flags.replace(/[gy]/g, '') + 'g');
      if (s === '') return apply(exec, search, [s]) === null ? [s] : out;
      let from = 0, at = 0;
      while (at < s.length) {
        search.lastIndex = at;
        const m = apply(exec, search, [s]);
        if (m === null || m.index >= s.length) break;
        const end = m.index + m[0].length;
        if (end === from) {
          at = m.index + (core.contains(flags, 'u') && s.codePointAt(m.index) > 0xffff ? 2 : 1);
          continue;
        }
        out.push(apply(slice, s, [from, m.index]));
        for (let i = 1; i < m.length && out.length < most; i++) out.push(m[i]);
        if (out.length >= most) return out;
        from = at = end;
      }
      out.push(apply(slice, s, [from]));
      return out;
    },
  }[Symbol.split];
  Object.defineProperty(proto, Symbol.split, { value: split, writable: true, configurable: true });
  Object.defineProperty(proto, Symbol.replace, { value: replaced, writable: true, configurable: true });
});
