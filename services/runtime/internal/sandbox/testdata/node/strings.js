return 'abc'.at(-1) + 'abc'.charAt(9) + 'abc'[1]
return 'a-b-c'.replaceAll('-', '+')
return 'aaa'.replace('a', x => x.toUpperCase())
return 'aXbX'.replaceAll(/x/gi, (m, at) => at)
return 'aXbX'.replaceAll(/x/i, '')
return 'John Smith'.replace(/(\w+)\s(\w+)/, '$2, $1')
return 'abc'.replace('b', "[$`|$&|$']")
return 'a$1b'.replace('$1', '$$')
return '2024-05-06'.replace(/(?<y>\d+)-(?<m>\d+)-(?<d>\d+)/, '$<d>/$<m>/$<y>')
return 'a,b,,c'.split(',') + '|' + 'abc'.split('') + '|' + 'abc'.split()
return 'a1b2c3'.split(/(\d)/)
return 'a,b,c'.split(',', 2)
return '😀é'.length + ',' + [...'😀é'].length
return '😀'.codePointAt(0) + ',' + '😀'.charCodeAt(1) + ',' + String.fromCodePoint(128512)
return String.fromCharCode(65, 0x10041)
return String.fromCodePoint(1.5)
return 'abc'.padStart(6, '12') + 'abc'.padEnd(5) + '|'
return ' \u00a0\ufeff x \n'.trim() + '|' + ' x '.trimStart() + '|' + ' x '.trimEnd()
return 'abc'.substring(2, 0) + 'abc'.substr(-2, 1) + 'abc'.slice(-2)
return 'ab'.repeat(0) + 'ab'.repeat(2.9)
return 'ab'.repeat(-1)
return 'ab'.repeat(Infinity)
return 'abc'.localeCompare('abd') + ',' + 'a'.localeCompare('B') + ',' + 'a'.localeCompare('A') + ',' + 'é'.localeCompare('f')
return ['b', 'a', 'C', 'ä', 'A', 'z', 'Z', '1', '10', '2', '-', ' ', 'é', 'e'].sort((a, b) => a.localeCompare(b))
return ['a10', 'a9', 'a1'].sort((a, b) => a.localeCompare(b, undefined, {numeric: true}))
return ['a'.localeCompare('A', 'en', {sensitivity: 'base'}), 'a'.localeCompare('á', 'en', {sensitivity: 'base'}), 'a'.localeCompare('b', 'en', {sensitivity: 'base'})]
return ['a'.localeCompare('A', undefined, {sensitivity: 'accent'}), 'a'.localeCompare('á', undefined, {sensitivity: 'accent'})]
return ['ö'.localeCompare('z', 'sv'), 'ö'.localeCompare('z', 'de')]
return 'a'.localeCompare('b', 'not a locale')
return 'ß'.toUpperCase() + 'İ'.toLowerCase() + 'ΑΣ'.toLowerCase() + 'ﬁ'.toUpperCase()
return 'I'.toLocaleLowerCase('en-US') + 'i'.toLocaleUpperCase()
return 'é'.normalize('NFD').length + ',' + 'e\u0301'.normalize().length + ',' + 'ﬁ'.normalize('NFKC')
return 'x'.normalize('bad')
return 'abcabc'.lastIndexOf('c', 4) + ',' + 'abc'.indexOf('', 9)
return 'abc'.includes('bc') && 'abc'.startsWith('b', 1) && 'abc'.endsWith('b', 2)
return 'abc'.includes(/b/)
return `a${1 + 1}b${[1, 2]}c${{}}`
return String.raw`a\n${1}`
const tag = (s, ...v) => s.raw.join('|') + v.join(); return tag`x\t${1}y${2}`
return 'a\u{1F600}b\x41\0'.length
return 'abc' < 'abd' && 'a' > 'B' && '10' < '9'
return '5' * '2' + '3'
return 'b' + 'a' + +'a' + 'a'
return encodeURIComponent('a b&c=d/é😀!~*\'()') + encodeURI('http://x/ü?q=a b#h')
return decodeURIComponent('%E4%BD%A0') + decodeURI('%2F%20')
return decodeURIComponent('%')
return encodeURIComponent('\ud800')
return escape('a b+ü😀') + unescape('%u0107%FC%zz')
return 'ab\ud800c'.isWellFormed() + 'ab\ud800c'.toWellFormed()
return 'x'.anchor('a"b') + 'x'.bold()
return [...'aXbX'.matchAll(/X/g)].map(m => m.index)
return 'abc'.match(/z/) + '|' + 'abcb'.match(/b/g) + '|' + 'abc'.search(/c/)
return 'tel: 555'.match(/(?<n>\d+)/).groups.n
return Object.prototype.toString.call('') + typeof Object('') + new String('a').length
return 'abc'.concat(1, null, [2])
return ''.split('').length + ',' + ''.split(',').length
return '\u2028'.length + JSON.stringify('\u2028\ud800"\\\b\u0007')
return String(Symbol('x')) + Symbol('d').description
return Symbol('x') + ''
return String(null) + String(undefined) + String([]) + String({}) + String(() => 1) + String(1n)
return JSON.parse('"\\ud800"') + '\ud800'.toLowerCase() + '\ud800'.trim() + '\ud800'.normalize()
