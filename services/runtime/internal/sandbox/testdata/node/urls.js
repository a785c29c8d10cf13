const u = new URL('https://user:pa%20ss@Example.COM:8080/a/./b/../c?x=1&y=2#frag'); return [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash]
return ['http://a.b', 'http://a.b?', 'http://a.b/#', 'HTTP://A.B:80/', 'https://a:443/x', 'ftp://a:21/', 'ws://a:80'].map(s => new URL(s).href)
return ['../x', './x', '/x', '//h/x', '?q', '#h', '', 'x/../y', 'https://o.p/'].map(s => new URL(s, 'http://a.b/c/d/e?f#g').href)
return ['http://a b/', 'http://', 'nope', 'http://a:99999/', 'http://[::1', '//x', 'http://a%zz', 'http://a:b/', ''].map(s => URL.canParse(s))
return new URL('/x')
return new URL('x', 'y')
return ['mailto:a@b.c', 'data:text/plain,hi there', 'javascript:alert(1)', 'about:blank', 'urn:x:y'].map(s => { const u = new URL(s); return [u.href, u.protocol, u.pathname, u.origin, u.host] })
return ['file:///etc/passwd', 'file://host/x', 'file:x'].map(s => new URL(s).href)
return ['http://a/ b?c d#e f', 'http://a/é?é#é', 'http://a/"<>`{}|\\?"<>`{}|^\'#"<>`{}', 'http://a/%7e%zz'].map(s => new URL(s).href)
return ['http://1.2.3', 'http://0x7f.1', 'http://2130706433/', 'http://127.0.0.1.', 'http://256.1.1.1'].map(s => URL.canParse(s) && new URL(s).hostname)
return ['http://[::1]/', 'http://[2001:DB8:0:0:1:0:0:1]:80/', 'http://[::ffff:1.2.3.4]'].map(s => new URL(s).host)
return ['http://EXAMPLE.com', 'http://münchen.de', 'http://日本.jp/', 'http://xn--mnchen-3ya.de', 'http://faß.de'].map(s => new URL(s).hostname)
return ['http:\\\\a\\b\\c', 'http:a/b', 'http:///a/b', '  http://a/  ', 'ht\ntp://a/\tb'].map(s => new URL(s).href)
const u = new URL('http://a.b/'); u.pathname = 'x y?'; u.port = '8080'; u.search = 'q=1 2'; u.hash = 'z z'; u.username = 'me@'; u.password = 'p:w'; return u.href
const u = new URL('http://a.b:81/'); u.port = ''; u.host = 'c.d:82'; u.hostname = 'e.f'; u.protocol = 'https'; return u.href
const u = new URL('http://a.b/'); u.port = 'x'; u.port = '99999'; u.protocol = 'mailto'; u.hostname = ''; u.port = '80'; return u.href
const u = new URL('http://a.b/p?x=1#h'); u.search = ''; u.hash = ''; return u.href
const u = new URL('http://a.b/?a=1&b=2'); u.searchParams.append('c', 'x y&z=é'); u.searchParams.delete('a'); return [u.href, u.search, [...u.searchParams]]
const u = new URL('http://a.b/?a=1'); u.search = '?b=2'; return [u.searchParams.get('a'), u.searchParams.get('b')]
const u = new URL('http://a.b/?a=1'); u.searchParams.delete('a'); return u.href
const u = new URL('http://a.b/?a=~%20b'); const before = u.href; u.searchParams.sort(); return [before, u.href]
return String(new URLSearchParams({a: '1 2', b: 'ü&=', c: ''}))
return String(new URLSearchParams([['a', '1'], ['a', '2']])) + new URLSearchParams(new Map([['x', 'y']]))
return [...new URLSearchParams('?a=1&b&=c&&d=%20+%2B&a=2&e=%zz%ff')]
const p = new URLSearchParams('a=1&b=2&a=3'); return [p.get('a'), p.getAll('a'), p.get('z'), p.has('b'), p.has('a', '3'), p.has('a', '9'), p.size]
const p = new URLSearchParams('a=1&b=2&a=3'); p.set('a', 'x'); p.append('c', 'é'); p.delete('b'); return String(p)
const p = new URLSearchParams('a=1&a=2'); p.delete('a', '1'); return String(p)
const p = new URLSearchParams('z=1&a=2&z=0'); p.sort(); return [String(p), [...p.keys()], [...p.values()]]
const out = []; new URLSearchParams('a=1&b=2').forEach((v, k) => out.push(k + v)); return out
return String(new URLSearchParams("a=~!*'()-._ %"))
return new URLSearchParams([['a']])
return new URLSearchParams(new URLSearchParams('a=1')).get('a') + new URLSearchParams(undefined) + new URLSearchParams('')
return JSON.stringify({u: new URL('http://a/b')}) + `${new URL('http://a/b')}`
return URL.canParse('x', 'http://a') && !URL.canParse('x')
return new URL()
return URL('http://a')
return [new URL('http://a/b/%2e%2e/c').pathname, new URL('http://a/b/.%2E/c').pathname, new URL('http://a/b/..').pathname, new URL('http://a/../..//x').pathname]
return new URL('http://a/b/?q=%E9&r=é%').search
return new URL('https://a.b/c;d=e,f@g:h!$&\'()*+=').href
return new URL('http://user@a/').username + new URL('http://:pw@a/').href + new URL('http://@a/').href
return Object.prototype.toString.call(new URL('http://a')) + typeof URL.prototype.toJSON
return ['custom://h:80/a/../b', 'custom:/a/b', 'custom:a/../b', 'git+ssh://u@h/x y', 'custom://H%20é/'].map(s => new URL(s).href)
const u = new URL('http://a/?b#c'); u.hash = '#'; u.search = '?'; return u.href
