// toLocaleString and its like for en-US and UTC, and comparison for any language. The engine's own ignore their
// arguments and group nothing; what is not here is refused, so that no answer is quietly another one.
(function (host, core) {
  'use strict';
  const { apply, text } = core;
  const put = (proto, methods) => {
    for (const name of Object.keys(methods)) Object.defineProperty(proto, name, { value: methods[name], writable: true, configurable: true });
  };
  const english = (locales) => {
    const first = Array.isArray(locales) ? locales[0] : locales;
    if (first === undefined || /^(en|en-US|default)$/i.test(text(first))) return;
    throw new RangeError('the locale ' + text(first) + ' is not available here, only en-US: write the format yourself');
  };
  const refused = (options, names) => {
    for (const name of names) {
      if (options[name] !== undefined) throw new RangeError('the option ' + name + ' is not available here: write the format yourself');
    }
  };
  const oneOf = (options, name, choices, usual) => {
    if (options[name] === undefined) return usual;
    const v = text(options[name]);
    if (!choices.includes(v)) throw new RangeError('the option ' + name + ' is one of ' + choices.join(', ') + ' here, not ' + v);
    return v;
  };
  const within = (options, name, least, most, usual) => {
    if (options[name] === undefined) return usual;
    const n = Math.floor(Number(options[name]));
    if (!(n >= least && n <= most)) throw new RangeError(name + ' value is out of range.');
    return n;
  };

  const symbols = {
    USD: '$', EUR: '€', GBP: '£', JPY: '¥', INR: '₹', CNY: 'CN¥', KRW: '₩', BRL: 'R$', CAD: 'CA$', AUD: 'A$', MXN: 'MX$', NZD: 'NZ$',
    HKD: 'HK$', TWD: 'NT$', ILS: '₪', VND: '₫', PHP: '₱', __proto__: null,
  };
  const whole = ['JPY', 'KRW', 'VND', 'CLP', 'ISK', 'UGX', 'XAF', 'XOF', 'PYG', 'RWF'];
  const thousandths = ['BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND'];

  // decimal writes a number without an exponent: its digits before and after the point.
  const decimal = (s) => {
    const [mantissa, exponent = '0'] = s.split('e');
    let [int, frac = ''] = mantissa.split('.');
    let e = Number(exponent);
    for (; e > 0; e--) { int += frac.charAt(0) || '0'; frac = frac.slice(1); }
    for (; e < 0; e++) { frac = (int.charAt(int.length - 1) || '0') + frac; int = int.slice(0, -1); }
    return [int.replace(/^0+(?=.)/, '') || '0', frac];
  };
  const rounded = (int, frac, most) => {
    if (frac.length <= most) return [int, frac];
    let digits = int + frac.slice(0, most);
    if (frac.charAt(most) >= '5') digits = text(BigInt(digits) + 1n).padStart(digits.length, '0');
    const at = digits.length - most;
    return [digits.slice(0, at), digits.slice(at)];
  };
  const format = (number, locales, options = {}) => {
    english(locales);
    options = Object(options);
    refused(options, ['minimumSignificantDigits', 'maximumSignificantDigits', 'unit', 'numberingSystem', 'roundingMode', 'roundingIncrement', 'roundingPriority', 'trailingZeroDisplay']);
    oneOf(options, 'notation', ['standard'], 'standard');
    oneOf(options, 'currencyDisplay', ['symbol'], 'symbol');
    oneOf(options, 'currencySign', ['standard'], 'standard');
    oneOf(options, 'signDisplay', ['auto'], 'auto');
    const style = oneOf(options, 'style', ['decimal', 'percent', 'currency'], 'decimal');
    const grouped = options.useGrouping === undefined || (options.useGrouping !== 'false' && Boolean(options.useGrouping));
    let currency = '', usual = [0, style === 'percent' ? 0 : 3];
    if (style === 'currency') {
      if (options.currency === undefined) throw new TypeError('Currency code is required with currency style.');
      currency = text(options.currency).toUpperCase();
      if (!/^[A-Z]{3}$/.test(currency)) throw new RangeError('Invalid currency code : ' + text(options.currency));
      const n = whole.includes(currency) ? 0 : thousandths.includes(currency) ? 3 : 2;
      usual = [n, n];
    }
    const ints = within(options, 'minimumIntegerDigits', 1, 21, 1);
    let least = within(options, 'minimumFractionDigits', 0, 20, undefined);
    let most = within(options, 'maximumFractionDigits', 0, 20, undefined);
    if (least === undefined) least = most === undefined ? usual[0] : Math.min(usual[0], most);
    if (most === undefined) most = Math.max(usual[1], least);
    if (least > most) throw new RangeError('maximumFractionDigits value is out of range.');

    let sign = '', digits;
    if (typeof number === 'number' && (number < 0 || Object.is(number, -0))) { sign = '-'; number = -number; }
    if (typeof number === 'bigint' && number < 0n) { sign = '-'; number = -number; }
    if (number !== number) digits = 'NaN';
    else if (number === Infinity) digits = '∞';
    else {
      let [int, frac] = decimal(text(number) + (style === 'percent' ? (text(number).includes('e') ? '' : 'e2') : ''));
      if (style === 'percent' && text(number).includes('e')) [int, frac] = decimal(text(number).replace(/e(.*)/, (_, e) => 'e' + (Number(e) + 2)));
      [int, frac] = rounded(int, frac, most);
      frac = frac.replace(/0+$/, '').padEnd(least, '0');
      int = int.padStart(ints, '0');
      if (grouped) int = int.replace(/\B(?=(\d{3})+$)/g, ',');
      digits = int + (frac ? '.' + frac : '');
    }
    if (style === 'percent') return sign + digits + '%';
    if (style === 'currency') return sign + (symbols[currency] || currency + '\u00a0') + digits;
    return sign + digits;
  };
  const { valueOf: numberOf } = Number.prototype;
  const { valueOf: bigOf } = BigInt.prototype;
  put(Number.prototype, { toLocaleString(locales, options) { return format(apply(numberOf, this, []), locales, options); } });
  put(BigInt.prototype, { toLocaleString(locales, options) { return format(apply(bigOf, this, []), locales, options); } });

  const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'];
  const days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
  const cut = (name, width) => (width === 'long' ? name : name.slice(0, width === 'short' ? 3 : 1));
  const two = (n) => (n < 10 ? '0' : '') + n;
  const dateParts = ['weekday', 'year', 'month', 'day'], timeParts = ['hour', 'minute', 'second'];
  const styles = ['full', 'long', 'medium', 'short'];
  const dateStyles = {
    full: { weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' }, long: { year: 'numeric', month: 'long', day: 'numeric' },
    medium: { year: 'numeric', month: 'short', day: 'numeric' }, short: { year: '2-digit', month: 'numeric', day: 'numeric' },
  };
  const odd = (parts) => { throw new RangeError('a date of ' + parts.join(' and ') + ' alone is not available here: write the format yourself'); };

  const dateText = (d, o) => {
    const year = d.getFullYear(), number = (v, width) => (width === '2-digit' ? two(v) : text(v));
    const y = o.year && (o.year === '2-digit' ? two(year % 100) : text(year));
    const day = o.day && number(d.getDate(), o.day);
    const weekday = o.weekday && cut(days[d.getDay()], o.weekday);
    const parts = dateParts.filter((p) => o[p]);
    if (parts.length === 0) return '';
    if (weekday && parts.length === 1) return weekday;
    if (weekday && parts.length === 2 && day) return day + ' ' + weekday;
    const lead = weekday ? weekday + ', ' : '';
    if ((weekday && (!o.month || !day)) || (y && day && !o.month)) odd(parts);
    if (o.month && o.month !== 'numeric' && o.month !== '2-digit') {
      const month = cut(months[d.getMonth()], o.month) + (day ? ' ' + day : '');
      return lead + month + (y ? (day ? ', ' : ' ') + y : '');
    }
    return lead + [o.month && number(d.getMonth() + 1, o.month), day, y].filter(Boolean).join('/');
  };
  const timeText = (d, o, clock) => {
    const parts = timeParts.filter((p) => o[p]);
    if (parts.length === 0) return '';
    if (o.hour && o.second && !o.minute) odd(parts);
    const h = d.getHours();
    const hour = clock === 'h12' ? (o.hour === '2-digit' ? two(h % 12 || 12) : text(h % 12 || 12)) : two(clock === 'h24' && h === 0 ? 24 : h);
    const alone = parts.length === 1;
    const rest = [o.minute && (alone ? text(d.getMinutes()) : two(d.getMinutes())), o.second && (alone ? text(d.getSeconds()) : two(d.getSeconds()))];
    const digits = [o.hour && hour, ...rest].filter((p) => p !== undefined).join(':');
    return o.hour && clock === 'h12' ? digits + (h < 12 ? ' AM' : ' PM') : digits;
  };
  // dates writes a date: needed says which parts count as given, usual which are put where none is.
  const dates = (d, locales, options = {}, needed, usual) => {
    english(locales);
    options = Object(options);
    refused(options, ['era', 'timeZoneName', 'dayPeriod', 'fractionalSecondDigits', 'calendar', 'numberingSystem']);
    if (options.timeZone !== undefined && !/^(UTC|GMT|Etc\/(UTC|GMT))$/i.test(text(options.timeZone))) {
      throw new RangeError('the time zone ' + text(options.timeZone) + ' is not available here: the clock of scripts is UTC');
    }
    const cycle = oneOf(options, 'hourCycle', ['h12', 'h23'], 'h12');
    const clock = options.hour12 === undefined ? cycle : options.hour12 ? 'h12' : 'h24';
    const o = {}, text_ = ['narrow', 'short', 'long'], width = ['2-digit', 'numeric'];
    for (const p of [...dateParts, ...timeParts]) {
      const v = oneOf(options, p, p === 'weekday' ? text_ : p === 'month' ? [...width, ...text_] : width, undefined);
      if (v !== undefined) o[p] = v;
    }
    const dateStyle = oneOf(options, 'dateStyle', styles, undefined), timeStyle = oneOf(options, 'timeStyle', ['medium', 'short'], undefined);
    let join = o.month === 'long' && o.hour ? ' at ' : ', ';
    if (dateStyle || timeStyle) {
      if (Object.keys(o).length > 0) throw new TypeError("Can't set option " + Object.keys(o)[0] + ' when ' + (dateStyle ? 'dateStyle' : 'timeStyle') + ' is used');
      if (needed === dateParts && timeStyle) throw new TypeError('Invalid option : timeStyle');
      if (needed === timeParts && dateStyle) throw new TypeError('Invalid option : dateStyle');
      if (dateStyle) Object.assign(o, dateStyles[dateStyle]);
      if (timeStyle) Object.assign(o, { hour: 'numeric', minute: '2-digit' }, timeStyle === 'medium' ? { second: '2-digit' } : {});
      join = dateStyle === 'full' || dateStyle === 'long' ? ' at ' : ', ';
    } else if (!needed.some((p) => o[p])) {
      for (const p of usual) o[p] = p === 'minute' || p === 'second' ? '2-digit' : 'numeric';
    }
    if (d.getTime() !== d.getTime()) return 'Invalid Date';
    return [dateText(d, o), timeText(d, o, clock)].filter(Boolean).join(join);
  };
  const { getTime, toISOString } = Date.prototype;
  const copy = (d) => new Date(apply(getTime, d, []));
  const both = [...dateParts, ...timeParts], ymd = ['year', 'month', 'day'];
  put(Date.prototype, {
    toLocaleString(locales, options) { return dates(copy(this), locales, options, both, [...ymd, ...timeParts]); },
    toLocaleDateString(locales, options) { return dates(copy(this), locales, options, dateParts, ymd); },
    toLocaleTimeString(locales, options) { return dates(copy(this), locales, options, timeParts, timeParts); },
    // The engine's own writes years of other than four digits too short.
    toISOString() {
      const s = apply(toISOString, this, []), year = this.getUTCFullYear();
      if (year >= 0 && year <= 9999) return s;
      return (year < 0 ? '-' : '+') + text(Math.abs(year)).padStart(6, '0') + s.slice(s.indexOf('-', 1));
    },
  });

  const plain = String.prototype.localeCompare;
  put(String.prototype, {
    localeCompare(that, locales, options) {
      if (locales === undefined && options === undefined) return apply(plain, this, [that]);
      if (this === null || this === undefined) throw new TypeError('localeCompare needs a string');
      const o = options === undefined ? {} : Object(options);
      refused(o, ['caseFirst', 'ignorePunctuation', 'usage']);
      const first = Array.isArray(locales) ? locales[0] : locales;
      const order = host.compare(text(this), text(that), first === undefined ? 'en' : text(first), Boolean(o.numeric),
        oneOf(o, 'sensitivity', ['base', 'accent', 'case', 'variant'], 'variant'));
      if (order === undefined) throw new RangeError('Incorrect locale information provided');
      return order;
    },
  });
  for (const name of ['toLocaleUpperCase', 'toLocaleLowerCase']) {
    const own = String.prototype[name];
    put(String.prototype, {
      [name](locales) {
        const first = Array.isArray(locales) ? locales[0] : locales;
        if (first !== undefined && /^(tr|az|lt)\b/i.test(text(first))) throw new RangeError('the letters of ' + text(first) + ' are not available here');
        return apply(own, this, []);
      },
    });
  }
});
