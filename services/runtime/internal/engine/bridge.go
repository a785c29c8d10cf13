package engine

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dop251/goja"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// host is the object that the preludes get. No script ever sees it. Each function takes primitives, buffers and
// functions that a prelude made, and nothing else.
func (m *machine) host() goja.Value {
	o := m.vm.NewObject()
	for name, f := range map[string]func(goja.FunctionCall) goja.Value{
		"call": m.hostCall, "fetch": m.hostFetch, "text": m.hostText, "markdown": m.hostMarkdown, "plain": m.hostPlain, "notJSON": m.hostNotJSON,
		"search": m.hostSearch, "artifact": m.hostArtifact, "log": m.hostLog, "done": m.hostDone, "fail": m.hostFail,
		"timer": m.hostTimer, "clear": m.hostClear, "elapsed": m.hostElapsed,
		"reserve": m.hostReserve, "pattern": m.hostPattern,
		"encode": m.hostEncode, "decode": m.hostDecode, "copy": m.hostCopy, "btoa": m.hostBtoa, "atob": m.hostAtob,
		"uuid": m.hostUUID, "random": m.hostRandom,
		"encodeInto": m.hostEncodeInto, "join": m.hostJoin, "incomplete": m.hostIncomplete, "wellFormed": m.hostWellFormed,
		"url": m.hostURL, "changeURL": m.hostChangeURL, "escape": m.hostEscape, "unescape": m.hostUnescape,
		"digest": m.hostDigest, "hmac": m.hostHMAC, "hmacEqual": m.hostHMACEqual, "compare": m.hostCompare,
		"indent": m.hostIndent,
	} {
		_ = o.Set(name, f) // a new plain object takes any property
	}
	return o
}

// hostCall(name, json, resolve, reject)
func (m *machine) hostCall(c goja.FunctionCall) goja.Value {
	name, args := c.Argument(0).String(), c.Argument(1).String()
	w := waiterOf(c.Argument(2), c.Argument(3))
	limits := m.run.Limits
	seq, ok := m.number(&m.calls, limits.Calls)
	switch {
	case !slices.Contains(m.run.Tools, name):
		return m.refuse(w, codeToolUnknown, unknownTool(name, m.run.Tools))
	case !ok:
		return m.refuse(w, codeTooMany, fmt.Sprintf("a script may make %d tool calls", limits.Calls))
	case len(args) > limits.Args:
		return m.refuse(w, codeArgs, fmt.Sprintf("the arguments are %d bytes; the limit is %d", len(args), limits.Args))
	case !json.Valid([]byte(args)):
		return m.refuse(w, codeArgs, "the arguments are nested too deeply")
	}
	return m.ask(w, seq, wire.KindCall, wire.Call{Seq: seq, Tool: name, Args: json.RawMessage(args)})
}

// hostFetch(method, url, headers, body, resolve, reject)
func (m *machine) hostFetch(c goja.FunctionCall) goja.Value {
	w := waiterOf(c.Argument(4), c.Argument(5))
	body := bytesOf(c.Argument(3))
	limits := m.run.Limits
	seq, ok := m.number(&m.fetches, limits.Fetches)
	switch {
	case !m.run.Fetch:
		return m.refuse(w, codeNoFetch, "fetch is not enabled for this run; call a granted tool instead")
	case !ok:
		return m.refuse(w, codeTooMany, fmt.Sprintf("a script may make %d fetches", limits.Fetches))
	case len(body) > limits.Request:
		return m.refuse(w, codeArgs, fmt.Sprintf("the body is %d bytes; the limit is %d", len(body), limits.Request))
	}
	request := wire.Fetch{Seq: seq, Method: c.Argument(0).String(), URL: c.Argument(1).String(), Body: body}
	headers := c.Argument(2).String()
	if err := json.Unmarshal([]byte(headers), &request.Header); err != nil || len(headers)+len(request.URL) > maxHead {
		return m.refuse(w, codeArgs, "the URL and headers are too large")
	}
	return m.ask(w, seq, wire.KindFetch, request)
}

const maxHead = 64 << 10

func waiterOf(resolve, reject goja.Value) waiter {
	yes, _ := goja.AssertFunction(resolve)
	no, _ := goja.AssertFunction(reject)
	return waiter{resolve: yes, reject: no}
}

// number gives a request its place among those of the script, before anything is known of it: one that is refused here
// takes its number too, and counts. What is refused may be another in the script's next life, as when a grant is gone,
// and what comes after it has to find its own place in the record. One beyond its limit takes none, and is beyond it in
// every life.
func (m *machine) number(issued *int, limit int) (seq int, ok bool) {
	if *issued >= limit {
		return 0, false
	}
	*issued++
	m.seq++
	return m.seq, true
}

// ask sends a request and keeps its ways back.
func (m *machine) ask(w waiter, seq int, kind wire.Kind, request any) goja.Value {
	m.open[seq] = w
	m.say(kind, request)
	return goja.Undefined()
}

// refuse rejects a request that is never sent.
func (m *machine) refuse(w waiter, code, message string) goja.Value {
	if _, err := w.reject(goja.Undefined(), m.vm.ToValue(code), m.vm.ToValue(message)); err != nil {
		panic(err)
	}
	return goja.Undefined()
}

// answer settles the request that a reply is for.
func (m *machine) answer(reply wire.Reply) *wire.Fail {
	w, open := m.open[reply.Seq]
	if !open {
		return &wire.Fail{Code: codeFault, Message: "a reply without a request"}
	}
	delete(m.open, reply.Seq)
	if w.keeps {
		m.keeping--
	}
	return m.enter(func() (err error) {
		switch {
		case reply.Problem != nil:
			_, err = w.reject(goja.Undefined(), m.vm.ToValue(reply.Problem.Code), m.vm.ToValue(reply.Problem.Message))
		case reply.Response != nil:
			body := reply.Response.Body
			reply.Response.Body = nil
			meta, failed := json.Marshal(reply.Response)
			if failed != nil {
				return failed
			}
			_, err = w.resolve(goja.Undefined(), m.vm.ToValue(string(meta)), m.vm.ToValue(m.vm.NewArrayBuffer(body)))
		case reply.Kept != nil:
			k := reply.Kept
			_, err = w.resolve(goja.Undefined(), m.vm.ToValue(string(k.Value)), m.vm.ToValue(k.Type), m.vm.ToValue(m.vm.NewArrayBuffer(k.Body)))
		default:
			_, err = w.resolve(goja.Undefined(), m.vm.ToValue(string(reply.Value)))
		}
		return err
	})
}

// unknownTool names what is near, because a model reads it and tries again.
func unknownTool(name string, granted []string) string {
	connection, _, _ := strings.Cut(name, ".")
	var near []string
	for _, g := range granted {
		if strings.HasPrefix(g, connection+".") {
			near = append(near, g)
		}
	}
	if len(near) == 0 {
		near = granted
	}
	if len(near) == 0 {
		return fmt.Sprintf("no tool %q: this script has no tools", name)
	}
	list := strings.Join(near[:min(len(near), 20)], ", ")
	return fmt.Sprintf("no tool %q is granted; there is %s", name, list)
}

// hostLog(level, line). The log ends at its limit, and says so.
func (m *machine) hostLog(c goja.FunctionCall) goja.Value {
	const overhead = 16 // an empty line is not free
	level, line := c.Argument(0).String(), strings.ToValidUTF8(c.Argument(1).String(), "\uFFFD")
	if m.logged >= m.run.Limits.Logs {
		return goja.Undefined()
	}
	left := m.run.Limits.Logs - m.logged
	m.logged += len(line) + overhead
	if len(line) > left {
		line = cut(line, left)
	}
	m.say(wire.KindLog, wire.Log{Level: level, Line: line})
	if m.logged >= m.run.Limits.Logs {
		m.say(wire.KindLog, wire.Log{Level: "warn", Line: "the log is full; later lines are dropped"})
	}
	return goja.Undefined()
}

// say sends to the parent. A worker that cannot is an orphan.
func (m *machine) say(kind wire.Kind, message any) {
	if err := m.conn.Send(kind, message); err != nil {
		panic(fmt.Errorf("send to parent: %w", err))
	}
}

// hostDone(json)
func (m *machine) hostDone(c goja.FunctionCall) goja.Value {
	value := c.Argument(0).String()
	m.settled = true
	if len(value) > m.run.Limits.Result {
		m.fail = &wire.Fail{Code: codeOutput,
			Message: fmt.Sprintf("the value is %d bytes of JSON; the limit is %d", len(value), m.run.Limits.Result)}
		return goja.Undefined()
	}
	if !json.Valid([]byte(value)) {
		m.fail = &wire.Fail{Code: codeOutput, Message: "the value is nested too deeply"}
		return goja.Undefined()
	}
	m.value = json.RawMessage(value)
	return goja.Undefined()
}

// hostFail(code, name, message, stack)
func (m *machine) hostFail(c goja.FunctionCall) goja.Value {
	m.settled, m.fail = true, failure(c, m.places, m.run.Tools)
	return goja.Undefined()
}

// hostTimer(callback, ms, repeat)
func (m *machine) hostTimer(c goja.FunctionCall) goja.Value {
	const longest = 24 * time.Hour // far beyond any run, and no overflow
	if len(m.clock.timers) >= m.run.Limits.Timers {
		panic(m.vm.NewTypeError("a script may have %d timers", m.run.Limits.Timers))
	}
	callback, _ := goja.AssertFunction(c.Argument(0))
	ms := min(c.Argument(1).ToFloat(), float64(longest/time.Millisecond))
	return m.vm.ToValue(m.clock.start(time.Duration(ms*float64(time.Millisecond)), c.Argument(2).ToBoolean(), callback))
}

// hostClear(id)
func (m *machine) hostClear(c goja.FunctionCall) goja.Value {
	m.clock.clear(int(c.Argument(0).ToInteger()))
	return goja.Undefined()
}

func (m *machine) hostElapsed(goja.FunctionCall) goja.Value {
	return m.vm.ToValue(m.clock.elapsed.Milliseconds())
}

// hostReserve(length) stops a script that is about to make a string beyond its memory.
func (m *machine) hostReserve(c goja.FunctionCall) goja.Value {
	if c.Argument(0).ToFloat() > float64(m.run.Limits.Heap) {
		m.stop(codeMemory)
	}
	return goja.Undefined()
}

// hostPattern(source, flags)
func (m *machine) hostPattern(c goja.FunctionCall) goja.Value {
	return m.vm.ToValue(suited(c.Argument(0).String(), c.Argument(1).String()))
}

// hostIndent(json, gap)
func (m *machine) hostIndent(c goja.FunctionCall) goja.Value {
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(c.Argument(0).String()), "", c.Argument(1).String()); err != nil {
		panic(m.vm.NewTypeError("the value is nested too deeply"))
	}
	return m.vm.ToValue(out.String())
}

// bytesOf gives a copy of the buffer's bytes.
func bytesOf(v goja.Value) []byte {
	buffer, ok := v.Export().(goja.ArrayBuffer) // a buffer exports itself; no script code runs
	if !ok || buffer.Detached() {
		return nil
	}
	return slices.Clone(buffer.Bytes())
}

// window is the part of a buffer that a view shows: (buffer, offset, length).
func window(c goja.FunctionCall) []byte {
	buffer, ok := c.Argument(0).Export().(goja.ArrayBuffer)
	at, size := c.Argument(1).ToInteger(), c.Argument(2).ToInteger()
	if !ok || buffer.Detached() || at < 0 || size < 0 || at+size > int64(len(buffer.Bytes())) {
		return nil
	}
	return buffer.Bytes()[at : at+size]
}

func (m *machine) buffer(b []byte) goja.Value { return m.vm.ToValue(m.vm.NewArrayBuffer(b)) }

func (m *machine) hostEncode(c goja.FunctionCall) goja.Value {
	return m.buffer([]byte(wellFormed(c.Argument(0))))
}

// wellFormed is a value's text with U+FFFD for what is no character.
func wellFormed(v goja.Value) string { return strings.ToValidUTF8(v.String(), "\uFFFD") }

func (m *machine) hostWellFormed(c goja.FunctionCall) goja.Value {
	return m.vm.ToValue(wellFormed(c.Argument(0)))
}

// hostEncodeInto(text, buffer, offset, length)
func (m *machine) hostEncodeInto(c goja.FunctionCall) goja.Value {
	read, written := encodeInto(wellFormed(c.Argument(0)), window(arguments(c, 1)))
	return m.vm.ToValue(fmt.Sprintf("[%d,%d]", read, written))
}

// hostDecode(buffer, offset, length, fatal, wide)
func (m *machine) hostDecode(c goja.FunctionCall) goja.Value {
	b := window(c)
	var text string
	valid := true
	if c.Argument(4).ToBoolean() {
		text, valid = decodeUTF16(b)
	} else {
		text, valid = decodeUTF8(b), utf8.Valid(b)
	}
	if !valid && c.Argument(3).ToBoolean() {
		panic(m.vm.NewTypeError("the bytes are not valid text"))
	}
	return m.vm.ToValue(text)
}

// hostIncomplete(buffer, offset, length, wide)
func (m *machine) hostIncomplete(c goja.FunctionCall) goja.Value {
	return m.vm.ToValue(unfinished(window(c), c.Argument(3).ToBoolean()))
}

// hostJoin(buffer, buffer, offset, length)
func (m *machine) hostJoin(c goja.FunctionCall) goja.Value {
	return m.buffer(append(bytesOf(c.Argument(0)), window(arguments(c, 1))...))
}

func (m *machine) hostCopy(c goja.FunctionCall) goja.Value { return m.buffer(slices.Clone(window(c))) }

// hostBtoa and hostAtob work on strings whose characters stand for bytes. They give undefined for what they do not take.
func (m *machine) hostBtoa(c goja.FunctionCall) goja.Value {
	var raw []byte
	for _, r := range c.Argument(0).String() {
		if r > 0xff {
			return goja.Undefined()
		}
		raw = append(raw, byte(r))
	}
	return m.vm.ToValue(base64.StdEncoding.EncodeToString(raw))
}

func (m *machine) hostAtob(c goja.FunctionCall) goja.Value {
	text := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\n\f\r", r) {
			return -1
		}
		return r
	}, c.Argument(0).String())
	if len(text)%4 == 0 {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "="), "=")
	}
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return goja.Undefined()
	}
	out := make([]rune, len(raw))
	for i, b := range raw {
		out[i] = rune(b)
	}
	return m.vm.ToValue(string(out))
}

// hostUUID is a version 4 UUID from the run's seed.
func (m *machine) hostUUID(goja.FunctionCall) goja.Value {
	var b [16]byte
	_, _ = m.rng.Read(b[:]) // ChaCha8 never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return m.vm.ToValue(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// hostRandom(buffer, offset, length) fills the view.
func (m *machine) hostRandom(c goja.FunctionCall) goja.Value {
	_, _ = m.rng.Read(window(c))
	return goja.Undefined()
}

func (m *machine) hostEscape(c goja.FunctionCall) goja.Value {
	return m.vm.ToValue(escapeQuery(wellFormed(c.Argument(0))))
}

func (m *machine) hostUnescape(c goja.FunctionCall) goja.Value {
	return m.vm.ToValue(unescapeQuery(wellFormed(c.Argument(0))))
}

// hostURL(text, base)
func (m *machine) hostURL(c goja.FunctionCall) goja.Value {
	var base *string
	if b := c.Argument(1); !goja.IsUndefined(b) {
		text := wellFormed(b)
		base = &text
	}
	return m.vm.ToValue(parseURL(wellFormed(c.Argument(0)), base))
}

// hostChangeURL(href, part, value)
func (m *machine) hostChangeURL(c goja.FunctionCall) goja.Value {
	return m.vm.ToValue(changeURL(c.Argument(0).String(), c.Argument(1).String(), wellFormed(c.Argument(2))))
}

// trackRejection keeps rejected promises until somebody handles them.
func (m *machine) trackRejection(p *goja.Promise, op goja.PromiseRejectionOperation) {
	if op == goja.PromiseRejectionReject {
		m.rejected = append(m.rejected, p)
		return
	}
	m.rejected = slices.DeleteFunc(m.rejected, func(q *goja.Promise) bool { return q == p })
}

// unhandled describes the rejections that nobody saw, as many as are useful.
func (m *machine) unhandled() []string {
	const most = 10
	var out []string
	for _, p := range m.rejected[:min(len(m.rejected), most)] {
		if m.whyStopped() != nil {
			break
		}
		var text string
		if m.enter(func() error {
			if fail := m.uncaught(p.Result()); fail != nil {
				text = fmt.Sprintf("unhandled rejection: %s %s", fail.Name, fail.Message)
			}
			return nil
		}) == nil {
			out = append(out, cut(text, 512))
		}
	}
	return out
}
