return [...new TextEncoder().encode('é€😀\ud800')]
const out = new Uint8Array(4); const r = new TextEncoder().encodeInto('a€b', out); return [r, [...out]]
return new TextEncoder().encode().length + new TextEncoder().encoding
return [new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 104])), new TextDecoder('utf-8', {ignoreBOM: true}).decode(new Uint8Array([0xef, 0xbb, 0xbf, 104])).length]
return [[0xff], [0xc3], [0xc3, 0x41], [0xe2, 0x82], [0xe2, 0x82, 0x41], [0xf0, 0x9f, 0x98], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf5, 0x80], [0xff, 0xc3, 0x41, 0xe2, 0x82]].map(b => new TextDecoder().decode(new Uint8Array(b)))
return new TextDecoder('utf-8', {fatal: true}).decode(new Uint8Array([255]))
const d = new TextDecoder(); return d.decode(new Uint8Array([0xe2, 0x82]), {stream: true}) + d.decode(new Uint8Array([0xac, 0x41])) + d.decode()
const d = new TextDecoder(); return d.decode(new Uint8Array([0xe2, 0x82]), {stream: true}) + d.decode()
return new TextDecoder('utf-16le').decode(new Uint8Array([65, 0, 0x3d, 0xd8, 0, 0xde]))
return new TextDecoder('UTF8').encoding + new TextDecoder().fatal
return new TextDecoder('nonsense')
return new TextDecoder().decode('x')
return new TextDecoder().decode(new Uint8Array([1, 104, 105, 2]).subarray(1, 3)) + new TextDecoder().decode(new DataView(new Uint8Array([104]).buffer)) + new TextDecoder().decode(new Uint16Array([0x6968]))
return [btoa('hÿ\0'), btoa(''), atob('aP8=') === 'hÿ', atob(' aG\nk '), atob('aGk'), atob('')]
return atob('!!')
return atob('a')
return atob('aGk==')
return atob('ab=c')
return btoa('€')
return btoa()
return [typeof crypto.randomUUID(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), crypto.getRandomValues(new Uint8Array(3)).length]
return crypto.getRandomValues(new Float32Array(1))
return crypto.getRandomValues(new Uint8Array(65537))
return crypto.getRandomValues([1, 2])
const hex = b => [...new Uint8Array(b)].map(x => x.toString(16).padStart(2, '0')).join(''); return await Promise.all(['SHA-1', 'SHA-256', 'SHA-384', 'sha-512', {name: 'SHA-256'}].map(async a => hex(await crypto.subtle.digest(a, new TextEncoder().encode('abc')))))
return await crypto.subtle.digest('MD5', new Uint8Array(1))
return await crypto.subtle.digest('SHA-256', 'text')
const key = await crypto.subtle.importKey('raw', new TextEncoder().encode('secret'), {name: 'HMAC', hash: 'SHA-256'}, false, ['sign', 'verify']); const s = await crypto.subtle.sign('HMAC', key, new TextEncoder().encode('hi')); return [[...new Uint8Array(s)].slice(0, 4), await crypto.subtle.verify('HMAC', key, s, new TextEncoder().encode('hi')), await crypto.subtle.verify('HMAC', key, s, new TextEncoder().encode('ho')), key.type, key.extractable, key.usages, key.algorithm.name, key.algorithm.hash.name, key.algorithm.length]
const key = await crypto.subtle.importKey('raw', new Uint8Array(4), {name: 'HMAC', hash: 'SHA-1'}, true, ['verify']); return await crypto.subtle.sign('HMAC', key, new Uint8Array(1))
return await crypto.subtle.importKey('raw', new Uint8Array(0), {name: 'HMAC', hash: 'SHA-256'}, true, ['sign'])
return await crypto.subtle.importKey('raw', new Uint8Array(4), {name: 'HMAC', hash: 'SHA-256'}, true, [])
const c = new AbortController(); let n = 0; c.signal.addEventListener('abort', () => n++); c.abort(); c.abort(); return [n, c.signal.aborted, c.signal.reason.name]
const c = new AbortController(); c.abort('why'); return [c.signal.reason, AbortSignal.abort(5).reason]
return new AbortController().signal.throwIfAborted()
AbortSignal.abort().throwIfAborted()
const s = AbortSignal.timeout(2); await new Promise(r => s.addEventListener('abort', r)); return [s.aborted, s.reason.name]
return [new DOMException('m', 'AbortError').code, new DOMException('m').name, new DOMException('m', 'X') instanceof Error, String(new DOMException('m', 'NotFoundError')), DOMException.ABORT_ERR]
const h = new Headers({'X-A': ' 1 ', b: '2'}); h.append('x-a', '3'); return [[...h], h.get('X-a'), h.has('c'), h.get('c')]
return new Headers({'a b': 'x'})
return new Headers([['a', 'x\r\ny']])
const r = new Response('{"a":[1]}', {status: 201, headers: {'content-type': 'application/json'}}); return [r.status, r.ok, r.bodyUsed, await r.json(), r.bodyUsed, r.headers.get('content-type')]
const r = new Response('x'); await r.text(); return await r.text()
return await new Response(new Uint8Array([104, 105])).text() + (await new Response('é').arrayBuffer()).byteLength
return [typeof performance.now(), performance.now() >= 0, typeof performance.timeOrigin]
return [typeof globalThis, typeof console.log, typeof fetch, typeof structuredClone, typeof queueMicrotask]
