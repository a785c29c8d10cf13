package sandbox

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// property is an expression over x that has to give the same here and in node for every x.
type property struct {
	name string
	make func(*rand.Rand) string // an x, as JSON
	expr string
	// but says which answers are known to differ: here first, then node's.
	but func(here, there string) bool
}

// emptyQuery is a base that ends in ?, which node loses before a fragment.
func emptyQuery(here, there string) bool { return strings.Replace(here, "?#", "#", 1) == there }

// halved is text with half a surrogate pair.
func halved(here, _ string) bool { return strings.Contains(here, "\ufffd") }

// accepted is a pattern that node refuses and the engine does not, or one that node finds within a pair.
func accepted(_, there string) bool {
	return there == "throws SyntaxError" || strings.Contains(there, `\\ud83d[`) || strings.Contains(there, `\ud83d[`)
}

var properties = []property{
	{"JSON round trip", jsonValue, `[JSON.stringify(x), JSON.stringify(x, null, 2), JSON.stringify(JSON.parse(JSON.stringify(x))), JSON.stringify(x, (k, v) => typeof v === 'string' ? v.length : v)]`, nil},
	{"JSON text", jsonText, `JSON.stringify(JSON.parse(x))`, halved},
	{"structuredClone", jsonValue, `JSON.stringify(structuredClone({x, m: new Map([[x, new Set([x])]])}.x))`, nil},
	{"sort", numbers, `[[...x].sort(), [...x].sort((a, b) => a - b), x.map((v, i) => ({k: Math.floor(v) % 3, i})).sort((a, b) => a.k - b.k).map(o => o.i), x.toSorted((a, b) => b - a)]`, nil},
	{"sort strings", brokenTexts, `[[...x].sort(), [...x].sort((a, b) => a < b ? 1 : a > b ? -1 : 0), [...new Set(x)].length]`, nil},
	{"number formats", number, `[String(x), x.toFixed(0), x.toFixed(3), x.toPrecision(5), x.toPrecision(17), x.toExponential(4), x.toExponential(), Number(String(x)) === x]`, nil},
	{"number arithmetic", smaller, `x.map((v, i) => [v + (x[i + 1] ?? 0), v * (x[i + 1] ?? 1) + 0, v / 3, v % 7, Math.round(v), Math.trunc(v), v | 0, v >>> 0, Math.sqrt(Math.abs(v)), Math.floor(v), Math.sign(v)])`, nil},
	{"number bases", integer, `[x.toString(2), x.toString(16), x.toString(8), parseInt(x.toString(36), 36) === x, BigInt(x).toString(7), Number(BigInt(x)) === x, BigInt.asIntN(16, BigInt(x)).toString()]`, nil},
	{"number texts", numberText, `[Number(x), parseFloat(x), parseInt(x) + 0, parseInt(x, 16) + 0, +x, isNaN(x)]`, nil},
	{"number toLocaleString", number, `Math.abs(x) < 1e21 ? [x.toLocaleString(), x.toLocaleString('en-US', {maximumFractionDigits: 1}), x.toLocaleString('en-US', {style: 'currency', currency: 'USD'}), x.toLocaleString('en-US', {minimumFractionDigits: 2, maximumFractionDigits: 2}), x.toLocaleString('en-US', {style: 'percent'})] : x.toLocaleString()`, nil},
	{"string methods", text, `[x.length, x.toUpperCase(), x.toLowerCase(), x.trim(), x.split(''), [...x].length, x.slice(-3), x.slice(1, 4), x.at(-1) ?? null, x.padStart(12, 'ab'), x.padEnd(9), x.indexOf('a'), x.lastIndexOf('b'), x.replaceAll('a', '<$&>'), x.split('a'), x.normalize('NFD').length, x.normalize('NFKC'), x.codePointAt(0) ?? null, x.charCodeAt(1), x.repeat(2).length, x.startsWith('a'), x.substring(3, 1), x.isWellFormed(), x.toWellFormed()]`, nil},
	{"broken strings", brokenText, `[x.length, x.split(''), [...x].length, x.slice(-3), x.slice(1, 4), x.padStart(12, 'ab'), x.indexOf('a'), x.replaceAll('a', '<$&>'), x.codePointAt(0) ?? null, x.isWellFormed(), x.toWellFormed()]`, nil},
	{"string escapes", brokenText, `[JSON.stringify(x), escape(x), unescape(escape(x)) === x]`, nil},
	{"string URI", brokenText, `[encodeURIComponent(x), decodeURIComponent(encodeURIComponent(x)) === x, encodeURI(x)]`, nil},
	{"string URI decoding", percentText, `[decodeURIComponent(x), decodeURI(x)]`, nil},
	{"string order", letters, `x.split(' ').sort((a, b) => a.localeCompare(b))`, nil},
	{"regexps", pattern, `(([p, f, s]) => { const r = new RegExp(p, f); const m = r.exec(s); return [m && [...m].map(g => g ?? null), m && m.index, s.replace(r, '[$&$1]'), s.split(r).map(g => g ?? null), s.search(r), r.lastIndex] })(x)`, accepted},
	{"URL", address, `new URL(x).href`, nil},
	{"URL parts", address, `(u => [u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash, [...u.searchParams]])(new URL(x))`, nil},
	{"URL with a base", func(r *rand.Rand) string { return pair(relative(r), special(r)) }, `new URL(x[0], x[1]).href`, emptyQuery},
	{"URL changes", func(r *rand.Rand) string { return pair(special(r), relative(r)) }, `['protocol', 'username', 'password', 'hostname', 'pathname', 'search', 'hash'].map(p => { const u = new URL(x[0]); u[p] = x[1]; return u.href })`, nil},
	{"URL hosts", func(r *rand.Rand) string {
		return pair(special(r), quoted(oneOf(r, "", "b.test", "b.test:81", "b.test:80", "[::2]", "a b", "1.2.3", "x/y", "x?y", "münchen.de", "b.test:")))
	}, `(u => { u.host = x[1]; return [u.href, u.host] })(new URL(x[0]))`, nil},
	{"URL ports", func(r *rand.Rand) string {
		return pair(special(r), quoted(oneOf(r, "", "80", "443", "8080", "1x", "65536", "0", "00021", "9 9")))
	}, `(u => { u.port = x[1]; return [u.href, u.port] })(new URL(x[0]))`, nil},
	{"URLSearchParams", queryText, `(p => [String(p), [...p], p.get('a'), (p.sort(), String(p)), (p.append('z', x), String(p))])(new URLSearchParams(x))`, nil},
	{"dates", millis, `(d => [d.toISOString(), d.toUTCString(), d.toDateString(), d.getDay(), d.getUTCFullYear(), d.getMonth(), d.getDate(), d.getHours(), d.getMilliseconds(), JSON.stringify(d), Date.parse(d.toISOString()) === x, Math.abs(x) < 4e12 && Date.parse(d.toUTCString())])(new Date(x))`, nil},
	{"dates toLocaleString", millis, `(d => [d.toLocaleString(), d.toLocaleDateString('en-US', {dateStyle: 'full'}), d.toLocaleTimeString('en-US', {timeStyle: 'short'}), d.toLocaleDateString('en-US', {month: 'short', day: '2-digit', year: 'numeric'})])(new Date(Math.abs(x) % 4e12))`, nil},
	{"dates arithmetic", millis, `(d => [d.setMonth(d.getMonth() + 13), d.setDate(40), d.setHours(-5, 70), d.setUTCFullYear(2000, -3, 400), d.getTime()])(new Date(x % 1e14))`, nil},
	{"dates of ISO texts", dateText, `Date.parse(x)`, nil},
	{"base64", bytesOfText, `[btoa(x), atob(btoa(x)) === x]`, nil},
	{"base64 decoding", base64Text, `[...atob(x)].map(c => c.charCodeAt(0))`, nil},
	{"TextEncoder", brokenText, `[[...new TextEncoder().encode(x)], (out => { const r = new TextEncoder().encodeInto(x, out); return [r.read, r.written, [...out]] })(new Uint8Array(7))]`, nil},
	{"TextDecoder", byteList, `[new TextDecoder().decode(new Uint8Array(x)), new TextDecoder('utf-16le').decode(new Uint8Array(x)), (d => x.map(b => d.decode(new Uint8Array([b]), {stream: true})).join('|') + d.decode())(new TextDecoder()), (d => x.map(b => d.decode(new Uint8Array([b]), {stream: true})).join('|') + d.decode())(new TextDecoder('utf-16le'))]`, nil},
	{"TextDecoder, fatal", byteList, `new TextDecoder('utf-8', {fatal: true}).decode(new Uint8Array(x))`, nil},
	{"typed arrays", smaller, `[[...new Uint8Array(x)], [...new Int16Array(x)], [...new Float32Array(x)], [...new Uint8ClampedArray(x)], [...new Uint32Array(x)], [...new Float64Array(x).sort()]]`, nil},
	{"comparisons", func(r *rand.Rand) string { return "[" + jsonValue(r) + "," + jsonValue(r) + "]" }, `(([a, b]) => [a == b, a === b, a < b, a + b, typeof a, !!a, String(a), Object.is(a, b)].map(v => typeof v === 'number' ? String(v) : v))(x)`, nil},
	{"arrays", numbers, `[x.toReversed(), x.toSpliced(1, 2, 'n'), x.slice(-2), x.flatMap(v => [v, [v]]), x.findLast(v => v > 0) ?? null, x.reduce((a, b) => a + b, 0), x.indexOf(x[2]), x.includes(NaN), x.join('|'), x.fill(0, 1, 2), [...x.entries()], x.copyWithin(0, 2)]`, nil},
}

// TestPropertiesAsInNode tries each property on many values.
func TestPropertiesAsInNode(t *testing.T) {
	seed := uint64(1)
	if s := os.Getenv("EXECWARDEN_TEST_SEED"); s != "" {
		seed = must(strconv.ParseUint(s, 10, 64))
	}
	const each = 150
	sources := make([]string, len(properties))
	values := make([][]string, len(properties))
	for i, p := range properties {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		for range each {
			values[i] = append(values[i], p.make(r))
		}
		sources[i] = encoded + "return [\n" + strings.Join(values[i], ",\n") + "\n].map(x => { try { return encode(" + p.expr + ") } catch (e) { return 'throws ' + e.name } })\n})())"
	}
	theirs, ours := askNode(t, sources), askWorkers(t, sources)
	for i, p := range properties {
		t.Run(p.name, func(t *testing.T) {
			here, there := list(t, ours[i]), list(t, theirs[i])
			if len(here) != len(there) || len(here) != each {
				t.Fatalf("%d values here, %d in node: %.300s", len(here), len(there), ours[i])
			}
			shown := 0
			for j := range here {
				if here[j] != there[j] && shown < 3 && (p.but == nil || !p.but(here[j], there[j])) {
					shown++
					t.Errorf("x = %s\n  here: %s\n  node: %s", values[i][j], here[j], there[j])
				}
			}
		})
	}
	if t.Failed() {
		t.Logf("EXECWARDEN_TEST_SEED=%d", seed)
	}
}

func list(t *testing.T, g given) (out []string) {
	t.Helper()
	if g.Value == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(*g.Value), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func oneOf[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

func quoted(s string) string { return string(must(json.Marshal(s))) }

// pair is an array of two values.
func pair(a, b string) string { return "[" + a + "," + b + "]" }

// units is a string of UTF-16 units, as JSON.
func units(r *rand.Rand, most int, halves func(*rand.Rand) string) string {
	var b strings.Builder
	b.WriteByte('"')
	for range r.IntN(most) {
		switch r.IntN(8) {
		case 0:
			fmt.Fprintf(&b, `\u%04x`, oneOf(r, 0xe9, 0xdf, 0x130, 0x3a3, 0x1f1, 0x301, 0x200d, 0x2028, 0xfeff, 0xa0, 0x4f60, 0xfb01, 0, 0x85, 0x7f))
		case 1:
			b.WriteString(`\ud83d\ude00`)
		case 2:
			b.WriteString(halves(r))
		default:
			b.WriteString(oneOf(r, "a", "b", "A", "z", " ", "1", "-", "_", ".", "%", "&", "=", "+", `\t`, `\n`, `\"`, `\\`, "/", "<", "$"))
		}
	}
	b.WriteByte('"')
	return b.String()
}

func text(r *rand.Rand) string {
	return units(r, 14, func(*rand.Rand) string { return "é" })
}

// brokenText has halves of surrogate pairs too.
func brokenText(r *rand.Rand) string {
	return units(r, 14, func(r *rand.Rand) string { return oneOf(r, `\ud83d`, `\ude00`, "x") })
}

func brokenTexts(r *rand.Rand) string { return many(r, brokenText) }

func many(r *rand.Rand, one func(*rand.Rand) string) string {
	var all []string
	for range 3 + r.IntN(8) {
		all = append(all, one(r))
	}
	return "[" + strings.Join(all, ",") + "]"
}

func number(r *rand.Rand) string {
	switch r.IntN(6) {
	case 0:
		return integer(r)
	case 1:
		return strconv.FormatFloat(r.NormFloat64()*100, 'f', r.IntN(4), 64)
	case 2:
		for {
			if f := math.Float64frombits(r.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
				return strconv.FormatFloat(f, 'g', -1, 64)
			}
		}
	case 3:
		return oneOf(r, "0", "-0", "0.5", "1.5", "2.5", "-0.5", "1e21", "1e-7", "0.000001", "123456789012345680000", "5e-324", "1.005", "0.1", "4.35", "999.9999", "-1e-10", "9007199254740993")
	case 4:
		return strconv.FormatFloat(r.Float64()*math.Pow(10, float64(r.IntN(30)-15)), 'g', -1, 64)
	}
	return strconv.FormatFloat(r.Float64(), 'g', 1+r.IntN(6), 64)
}

func integer(r *rand.Rand) string {
	return strconv.FormatInt(r.Int64N(1<<uint(1+r.IntN(52)))-r.Int64N(1<<uint(1+r.IntN(40))), 10)
}

func numbers(r *rand.Rand) string { return many(r, number) }

// smaller are numbers that bit operations are right for.
func smaller(r *rand.Rand) string {
	return many(r, func(r *rand.Rand) string {
		for {
			n := number(r)
			if f, _ := strconv.ParseFloat(n, 64); math.Abs(f) < 1<<62 {
				return n
			}
		}
	})
}

func numberText(r *rand.Rand) string {
	return quoted(oneOf(r, "", " ", "-", "+", "\n", "1_") + oneOf(r, strconv.Itoa(r.IntN(1e9)), strconv.FormatFloat(r.Float64()*1e6, 'g', -1, 64), "0x1f", "0b101", "0o17", "1e400", "-0x1") + oneOf(r, "", " ", "px", "e5", ".", "n", "e", ",5"))
}

func jsonValue(r *rand.Rand) string { return jsonOf(r, 3) }

func jsonOf(r *rand.Rand, depth int) string {
	kind := r.IntN(8)
	if depth == 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		return oneOf(r, "null", "true", "false")
	case 1, 2:
		return number(r)
	case 3, 4:
		return text(r)
	case 5, 6:
		var all []string
		for range r.IntN(4) {
			all = append(all, jsonOf(r, depth-1))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	var all []string
	for range r.IntN(4) {
		all = append(all, oneOf(r, `"a"`, `"b"`, `"2"`, `"10"`, `"toString"`, `"é"`, text(r))+":"+jsonOf(r, depth-1))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// jsonText is JSON with a fault here and there, as a string.
func jsonText(r *rand.Rand) string {
	s := []byte(jsonOf(r, 2))
	if len(s) > 0 && r.IntN(2) == 0 {
		at := r.IntN(len(s))
		s = append(s[:at:at], append([]byte(oneOf(r, "", ",", "]", "{", " ", "0", "-", "\"", "\\", "\t", "'")), s[at+r.IntN(2):]...)...)
	}
	return quoted(string(s))
}

func percentText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(8) {
		b.WriteString(oneOf(r, "%41", "%e4%bd%a0", "%C3%A9", "%2F", "%25", "a", "+", "%f0%9f%98%80", "%c3", "%ff", "%", "%4", "%zz", "é", "%23", "%ed%a0%80"))
	}
	return quoted(b.String())
}

func letters(r *rand.Rand) string {
	var b strings.Builder
	for range 12 {
		for range 1 + r.IntN(4) {
			b.WriteString(oneOf(r, "a", "b", "c", "A", "B", "z", "Z", "é", "ä", "1", "2", "o", "ö", "ß", "s", "e"))
		}
		b.WriteByte(' ')
	}
	return quoted(strings.TrimSpace(b.String()))
}

// pattern is [pattern, flags, text].
func pattern(r *rand.Rand) string {
	var atom func(depth int) string
	atom = func(depth int) string {
		n := r.IntN(12)
		if depth == 0 {
			n %= 8
		}
		switch n {
		case 8:
			return "(" + atom(depth-1) + atom(depth-1) + ")"
		case 9:
			return "(?:" + atom(depth-1) + "|" + atom(depth-1) + ")"
		case 10:
			return oneOf(r, "(?=", "(?!", "(?<=", "(?<!") + atom(0) + ")"
		case 11:
			return atom(depth-1) + oneOf(r, "*", "+", "?", "{1,2}", "*?", "+?", "{2}")
		}
		return oneOf(r, "a", "b", "c", ".", `\d`, `\w`, `\s`, "[ab]", "[^a]", "^", "$", "[a-c1]", `\D`, "x", "é", "😀")
	}
	p := ""
	for range 1 + r.IntN(4) {
		p += atom(2)
	}
	var s strings.Builder
	for range r.IntN(12) {
		s.WriteString(oneOf(r, "a", "b", "c", "1", " ", "x", "é", "A", "\n", "😀"))
	}
	return "[" + quoted(p) + "," + quoted(oneOf(r, "", "g", "i", "m", "s", "gi", "u", "gu", "y", "gm")) + "," + quoted(s.String()) + "]"
}

// special is an address with a host and a path.
func special(r *rand.Rand) string {
	return quoted(oneOf(r, "http", "https", "ws", "ftp") + "://" + oneOf(r, "", "", "user@", "user:pw@") +
		oneOf(r, "a.test", "127.0.0.1", "[::1]", "a.b.test", "localhost") + oneOf(r, "", "", ":80", ":443", ":8080") + rest(r))
}

func address(r *rand.Rand) string {
	host := oneOf(r, "a.test", "EXAMPLE.com", "127.0.0.1", "0x7f.1", "1.2", "[::1]", "[2001:db8::8:800:200C:417A]", "münchen.de", "xn--fa-hia.de", "a..b", "", "a b", "a%41.test", "%zz", "日本.jp", "256.256.256.256", "a.1", "[::1", "１２７.0.0.1", "a_b.test", "-a.test", "a.test.", "localhost")
	return quoted(oneOf(r, "http", "https", "HTTP", "ftp", "ws", "file", "http", "https", "1x", "") + oneOf(r, "://", "://", "://", ":", ":/", ":\\\\", ":///") +
		oneOf(r, "", "", "", "user@", "user:pw@", ":@", "u%40:p w@", "@", "a@b@") + host + oneOf(r, "", "", ":80", ":443", ":8080", ":", ":0", ":65536", ":8a", ":00080") + rest(r))
}

func rest(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteString(oneOf(r, "/a", "/b c", "/..", "/.", "/%2e%2E", "//", "/é", "\\x", "/%zz", "/{}", "/;=,", "/C:", "/C|", "/%41", "/'", "/\t"))
	}
	b.WriteString(oneOf(r, "", "", "?", "?q=1", "?a=b c&d=é", "?'\"<>", "?a?b/c", "?%zz%41"))
	b.WriteString(oneOf(r, "", "", "#", "#h", "#é x", "#a#b?`", "#%zz"))
	return b.String()
}

func relative(r *rand.Rand) string {
	return quoted(oneOf(r, "", "x", "../y", "./", "//h.test", "?q", "#h", "http:z", "https:z", "file:z", "mailto:a@b", "\\\\h\\x", " x ", "8080", "443", "x:1", "a b@", "http", "ftp", "C|/x", "x@y:z") + rest(r))
}

func queryText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(8) {
		b.WriteString(oneOf(r, "a=1", "b", "a=2", "&", "&&", "=", "%C3%A9", "%zz", "+", "c=d=e", "%ff", "?", "z=~!*'()", "%", "%4", "#", "a%26=b"))
	}
	return quoted(b.String())
}

func millis(r *rand.Rand) string {
	return strconv.FormatInt(oneOf(r, r.Int64N(4e12), r.Int64N(4e12)-2e12, r.Int64N(8.64e15*2)-8.64e15, r.Int64N(4e9)), 10)
}

func dateText(r *rand.Rand) string {
	return quoted(fmt.Sprintf("%04d-%02d-%02d", 1900+r.IntN(200), 1+r.IntN(12), 1+r.IntN(28)) +
		oneOf(r, "", "", fmt.Sprintf("T%02d:%02d", r.IntN(24), r.IntN(60)), fmt.Sprintf("T%02d:%02d:%02d", r.IntN(24), r.IntN(60), r.IntN(60)), fmt.Sprintf("T%02d:%02d:%02d.%03d", r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000))+oneOf(r, "", "Z", "+01:00", "-09:30")))
}

func bytesOfText(r *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('"')
	for range r.IntN(20) {
		fmt.Fprintf(&b, `\u%04x`, r.IntN(256)+oneOf(r, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 256))
	}
	b.WriteByte('"')
	return b.String()
}

func base64Text(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(9) {
		b.WriteString(oneOf(r, "A", "z", "9", "+", "/", "a", "Q", "g", " ", "\n"))
	}
	return quoted(b.String() + oneOf(r, "", "", "=", "==", "===", "-", "_"))
}

func byteList(r *rand.Rand) string {
	var all []string
	for range r.IntN(8) {
		all = append(all, oneOf(r, "65", "0", "239,187,191", "195,169", "226,130", "226,130,172", "240,159", "240,159,152,128", "237,160,128", "255", "192,128", "128", "61,216", "0,222", "254,255", "244,144", "224,159", strconv.Itoa(r.IntN(256))))
	}
	return "[" + strings.Join(all, ",") + "]"
}
