return /(\d+)-(?<w>\w+)/.exec('a 12-xy z').slice()
return 'aBc'.match(/b/i).index
return /a.c/s.test('a\nc') + ',' + /a.c/.test('a\nc')
return 'a\nb'.match(/^b$/m)[0]
const r = /a/g; r.test('aa'); return r.lastIndex
const r = /a/y; return [r.test('ba'), r.lastIndex, (r.lastIndex = 1, r.test('ba')), r.lastIndex]
return '2020-01-02'.match(/(?<y>\d{4})-(?<m>\d\d)/).groups.m
return 'price: $45'.match(/(?<=\$)\d+/)[0]
return 'a1b22'.match(/(?<!\d)\d(?!\d)/)[0]
return 'foobar'.replace(/foo(?=bar)/, 'X') + 'foobaz'.replace(/foo(?!bar)/, 'Y')
return /\u{1F600}/u.test('😀') + ',' + /^.$/u.test('😀') + ',' + /^.$/.test('😀')
return [/\p{L}/u.test('é'), /\p{Lu}/u.test('a'), /\p{Script=Greek}/u.test('α'), /\P{L}/u.test('1'), /[\p{L}\d]+/u.exec('é1-')[0], /\p{Emoji_Presentation}/u.test('😀')]
return /(a)|(b)/.exec('b')
return 'abc'.replace(/(a)(z)?/, '[$1][$2]')
return /(?:a|ab)(?:c|bcd)(?:d*)/.exec('abcd')[0]
return /(z)((a+)?(b+)?(c))*/.exec('zaacbbbcac')
return /^(a+)+$/.test('aaaaaaaaaaaaaaaaaaaa')
return 'aaa'.match(/a{2}/)[0] + 'aaa'.match(/a+?/)[0] + 'aaa'.match(/a{1,2}?/)[0]
return [/\bfoo\b/.test('a foo b'), /\Bo/.test('foo'), /[^\w\s]/.exec('a b!')[0], /[\s\S]/.test('\n')]
return /\cJ/.test('\n') + ',' + /\0/.test('\0') + ',' + /[\b]/.test('\b')
return /a|b/.source + /a/gimsuy.flags + new RegExp('').source
return new RegExp('/').source
return new RegExp('[')
return new RegExp('a', 'gg')
return new RegExp('a', 'q')
return new RegExp('(?<a>.)(?<a>.)')
return new RegExp('\\')
return new RegExp('a**')
return new RegExp('(')
return /(.)\1/.exec('hello')[0] + /(?<c>.)\k<c>/.exec('hello')[0]
return 'a.b*c'.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
return 'x'.replace(/x/, '$0$1$$')
return 'aaa'.replace(/a/g, (m, off, s) => off + s.length)
return 'k1=v1;k2=v2'.split(/[=;]/)
return 'ab'.split(/(?:)/u)
return 'aBC'.replace(/[A-Z]/g, c => '_' + c.toLowerCase())
return [...'k1=v1&k2=v2'.matchAll(/(?<k>\w+)=(?<v>\w+)/g)].map(m => ({...m.groups}))
return 'abc'.matchAll(/a/)
const r = /o/g; return ['foo'.replace(r, '0'), r.lastIndex]
return /[\u4e00-\u9fa5]/.test('中') + ',' + /[а-я]/i.test('Я') + ',' + /\u212a/iu.test('k')
return /ſ/i.test('s')
return /^[\w.+-]+@[\w-]+\.[\w.]+$/.test('a.b+c@d-e.co.uk')
return /^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$/.test('192.168.1.255')
return 'The Quick'.replace(/quick/i, m => m.length)
return RegExp.prototype.toString.call(/a/g) + RegExp('a', 'i').test('A') + (RegExp(/x/) instanceof RegExp)
const r = /x/; return RegExp(r) === r
return new RegExp(/ab/g, 'i').flags
return RegExp('\n').source
return Symbol.replace in /x/ && /x/[Symbol.replace]('axb', 'y')
return 'aaa'.lastIndexOf('a') + 'abcabc'.search(/c/g)
return /(?=(a))/.exec('a')
return '12345.678'.replace(/\B(?=(\d{3})+(?!\d))/g, ',')
return 'ééé'.replace(/é/g, 'e') + 'Ünï'.normalize('NFD').replace(/[\u0300-\u036f]/g, '')
return /[^]/.test('\n') + ',' + /[]/.test('a')
return /\w/.test('é') + ',' + /\d/.test('٣') + ',' + /\s/.test('\u3000')
return /a{,2}/.exec('a{,2}')[0] + /{/.exec('{')[0] + /]/.exec(']')[0]
return /^\/users\/(\d+)(?:\/(\w+))?$/.exec('/users/42/posts')
return 'ab'.replace(/b$/y, 'x')
return 'é1'.replace(/(?<=\b)1/, 'x')
return new RegExp('(?<=a)*')
return ['éa b'.replace(/\p{L}/u, '<$&>'), 'éab'.replace(/(?=a)./u, x => x + x), 'éa'.replace(/(?<n>a)|(b)/u, '[$<n>$1$2$$$`$3$01$10]'), 'éab'.replace(/(?!z)./u, (...a) => a.length)]
return [/\D$/y, /b$/y, /a/y].map(r => '\nbAéc'.replace(r, '[$&]'))
return 'éé'.replace(/\p{L}/gu, 'x') + 'éé'.replaceAll(/\p{L}/gu, '$&$&') + 'ab'.replace(/b/u, '$<n>')
return ['John é'.match(/\p{Lu}/u)[0], 'éa1'.split(/\p{N}/u), 'é1'.search(/\p{N}/u), [...'é1ü2'.matchAll(/\p{L}/gu)].length]
return ['baaac'.replace(/a*/g, 'x'), 'baaac'.match(/a*/g), 'baaac'.split(/a*/), 'bé'.replace(/b*/g, 'x'), 'abc'.replace(/$|b/gm, 'x'), 'baaac'.replace(new RegExp('a*', 'g'), '-')]
return ['éa'.match(/(?<n>a)|(b)/u).groups.n, 'é2024'.match(new RegExp('(?<y>\\d+)', 'u')).groups.y, {...'éx'.match(/(?<m>z)?x/u).groups}.m]
return [/\p{L}/u.source, String(/a*/g), new RegExp('\\p{L}', 'gu').toString(), new RegExp(/a*/g, 'i').source, new RegExp(/\p{L}/u, 'gu').test('é'), /(?=)/.source]
const r = new RegExp(/b*/g); return [r.source, r.flags, 'abb'.replace(r, 'x'), RegExp(/a/g, '').flags]
return ['1 11'.split(/\w?/g), 'b😀cé'.split(/\D😀/s), 'a1b22c'.split(/(\d)*/), 'abc'.split(/(?:)/, 2), ''.split(/a?/), ''.split(/a/), 'a😀b'.split(/(?:)/u), 'x,y'.split(/,?/), 'ab'.split(/$/)]
