return new Date(0).toISOString() + new Date(0).toJSON() + JSON.stringify(new Date(1e12))
return [new Date(0).toUTCString(), new Date(0).toDateString(), String(new Date(0)).slice(0, 33), new Date(0).toTimeString().slice(0, 17)]
return String(new Date(0))
return new Date(NaN).toISOString()
return [new Date(NaN).getTime(), String(new Date('x')), new Date(NaN).toJSON(), new Date(8.64e15 + 1).getTime()]
return new Date(2024, 0, 31, 12, 30, 15, 500).getTime()
return [new Date(2024, 1, 30), new Date(2024, 12, 1), new Date(2024, 0, 0), new Date(99, 0)].map(d => d.toISOString())
return [Date.UTC(2024, 1, 29), Date.UTC(2024), Date.UTC(70, 0), new Date(2024, 5).getTimezoneOffset()]
return ['2024-01-01', '2024-01', '2024', '2024-01-01T10:00', '2024-01-01T10:00:00Z', '2024-01-01T10:00:00.123456Z', '2024-01-01T10:00:00+02:00', '2024-01-01T10:00:00-0530', '2024-01-01 10:00', '2024-01-01T24:00:00Z'].map(s => Date.parse(s))
return ['2024-13-01', '2024-02-30', '2024-1-5', '24-01-01', 'x', '', '2024-01-01T25:00', '+002024-01-01T00:00:00Z', '-000001-01-01T00:00:00Z'].map(s => Date.parse(s))
return ['Jan 5, 2024', '5 January 2024', '1/2/2024', '01/02/2024 10:30 PM', 'Mon, 25 Dec 1995 13:30:00 GMT', 'Mon, 25 Dec 1995 13:30:00 +0430', 'Thu Jan 01 1970 00:00:00 GMT+0000 (Coordinated Universal Time)', 'Tue Mar 01 2022 10:00:00 GMT+0100', '2024/03/04', 'March 7'].map(s => Date.parse(s))
const d = new Date(Date.UTC(2024, 0, 31)); d.setMonth(1); return d.toISOString()
const d = new Date(0); d.setUTCFullYear(2020, 1, 29); d.setUTCHours(25, 61, 61, 1001); return d.toISOString()
const d = new Date(0); d.setDate(0); d.setHours(-1); return [d.getDay(), d.getDate(), d.getMonth(), d.getFullYear()]
return new Date(0).getYear()
const d = new Date('2024-03-10T05:06:07.089Z'); return [d.getUTCFullYear(), d.getUTCMonth(), d.getUTCDate(), d.getUTCDay(), d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds(), d.getUTCMilliseconds()]
return [new Date(5) - new Date(2), +new Date(7), new Date(1) < new Date(2), new Date(3) == 3]
return [new Date(0).toLocaleString(), new Date(0).toLocaleDateString(), new Date(0).toLocaleTimeString()]
const d = new Date('2024-07-04T15:09:08Z'); return [d.toLocaleString('en-US'), d.toLocaleDateString('en-US'), d.toLocaleTimeString('en-US'), d.toLocaleString('en-US', {timeZone: 'UTC'})]
const d = new Date('2024-07-04T15:09:08Z'); return ['short', 'medium', 'long', 'full'].map(s => [d.toLocaleDateString('en-US', {dateStyle: s}), d.toLocaleString('en-US', {dateStyle: s, timeStyle: 'short'})])
const d = new Date('2024-07-04T15:09:08Z'); return ['short', 'medium'].map(s => d.toLocaleTimeString('en-US', {timeStyle: s}))
const d = new Date('2024-07-04T05:09:08Z'); return [d.toLocaleDateString('en-US', {month: 'long'}), d.toLocaleDateString('en-US', {year: 'numeric', month: 'long', day: 'numeric'}), d.toLocaleDateString('en-US', {weekday: 'long', year: 'numeric', month: 'short', day: 'numeric'}), d.toLocaleDateString('en-US', {month: 'short', day: 'numeric'}), d.toLocaleDateString(undefined, {weekday: 'short'}), d.toLocaleDateString('en-US', {year: 'numeric', month: '2-digit', day: '2-digit'}), d.toLocaleDateString('en-US', {month: 'long', year: 'numeric'}), d.toLocaleDateString('en-US', {year: '2-digit', month: 'numeric', day: 'numeric'})]
const d = new Date('2024-07-04T05:09:08Z'); return [d.toLocaleTimeString('en-US', {hour: '2-digit', minute: '2-digit'}), d.toLocaleTimeString('en-US', {hour: 'numeric', minute: '2-digit'}), d.toLocaleTimeString('en-US', {hour12: false}), d.toLocaleTimeString('en-US', {hour: 'numeric'}), d.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', hour12: false})]
const d = new Date('2024-07-04T05:09:08Z'); return [d.toLocaleString('en-US', {month: 'short', day: 'numeric', hour: 'numeric', minute: '2-digit'}), d.toLocaleString('en-US', {weekday: 'short', month: 'numeric', day: 'numeric'})]
return [new Date(NaN).toLocaleString(), new Date(NaN).toLocaleDateString()]
return new Date(2024, 0, 1, 0, 5).toLocaleTimeString() + new Date(2024, 0, 1, 12, 5).toLocaleTimeString()
return [new Date(-1).toISOString(), new Date(-62198755200000).toISOString(), new Date(253402300800000).toISOString()]
return [typeof Date(), new Date(new Date(9)).getTime(), new Date('9').getTime(), new Date(null).getTime(), new Date(undefined).getTime(), new Date(true).getTime()]
return Object.prototype.toString.call(new Date) + (new Date(0)[Symbol.toPrimitive]('number'))
return new Date(0)[Symbol.toPrimitive]('bad')
const d = new Date(2024, 0, 15); const first = new Date(d.getFullYear(), d.getMonth() + 1, 0); return first.getDate()
return Math.round((new Date('2024-03-31') - new Date('2024-03-01')) / 864e5)
