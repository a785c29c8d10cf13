package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// FuzzSession is the parent with a worker that says anything: it comes to an end, asks its host for nothing that was
// not granted, and keeps no more than the limits.
func FuzzSession(f *testing.F) {
	frame := func(kind wire.Kind, flags byte, body string) []byte {
		head := binary.BigEndian.AppendUint32(nil, uint32(len(body)+2))
		return append(append(head, byte(kind), flags), body...)
	}
	all := func(frames ...[]byte) []byte { return bytes.Join(frames, nil) }
	f.Add([]byte{})
	f.Add(frame(wire.KindDone, 0, `{"value":1,"usage":{"cpu_us":1,"heap":1}}`))
	f.Add(all(frame(wire.KindCall, 0, `{"seq":1,"tool":"a.b","args":{}}`), frame(wire.KindDone, 0, `{"value":[1],"warnings":["x"],"usage":{}}`)))
	f.Add(all(frame(wire.KindCall, 0, `{"seq":1,"tool":"a.b","args":null}`), frame(wire.KindFetch, 0, `{"seq":2,"method":"GET","url":"https://a.test","header":[{"name":"a","value":"b"}],"body":"eA=="}`)))
	f.Add(frame(wire.KindCall, 0, `{"seq":1,"tool":"a.b"}`))
	f.Add(all(frame(wire.KindCall, 0, `{"seq":2,"tool":"a.b","args":{}}`), frame(wire.KindCall, 0, `{"seq":1,"tool":"root.shell","args":{}}`)))
	f.Add(all(frame(wire.KindCall, 0, `{"seq":2,"tool":"a.b","args":{}}`), frame(wire.KindCall, 0, `{"seq":125,"tool":"a.b","args":{}}`), frame(wire.KindCall, 0, `{"seq":126,"tool":"a.b","args":{}}`)))
	f.Add(all(frame(wire.KindLog, 0, `{"level":"info","line":"x"}`), frame(wire.KindLog, 1, `{"level":`), frame(wire.KindLog, 0, `"warn","line":"y"}`)))
	f.Add(frame(wire.KindFail, 0, `{"code":"exception","name":"Error","message":"x","line":1,"col":1,"usage":{}}`))
	f.Add(frame(wire.KindFail, 0, `{"code":"sandbox_fault","message":"x","line":-1,"usage":{"cpu_us":-1}}`))
	f.Add(all(frame(wire.KindHello, 0, `{}`), frame(wire.KindRun, 0, `{}`), frame(wire.KindReply, 0, `{"seq":1}`)))

	// A process that has ended stands for the worker; its words come from the fuzzer.
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		f.Fatal(err)
	}
	exited := make(chan struct{})
	close(exited)
	limits := Limits{Heap: 16 << 20, Calls: 3, Fetches: 2, Args: 64, Request: 64, Result: 64, Logs: 64, Concurrent: 2, Total: time.Minute}.WithDefaults()
	p := &Pool{log: quiet(), config: Config{Limits: limits}}

	f.Fuzz(func(t *testing.T, words []byte) {
		w := &worker{cmd: cmd, stderr: &lastWords{}, exited: exited, end: cmd.ProcessState}
		w.conn = wire.NewConn(struct {
			io.Reader
			io.Writer
		}{&lingering{bytes.NewReader(words)}, io.Discard})
		host := &fakeHost{}
		got, err := newSession(p, w, limits, host).run(t.Context(), script(`1`))

		var failed *ScriptError
		switch {
		case err == nil:
			if !json.Valid(got.Value) || len(got.Value) > limits.Result {
				t.Errorf("value %q", got.Value)
			}
		case !errors.As(err, &failed):
			t.Errorf("%T: %v", err, err)
		case !word.MatchString(failed.Code) || len(failed.Message) > maxFail:
			t.Errorf("%+v", failed)
		}
		seen := map[int]bool{}
		for _, c := range host.calls {
			if c.Tool != "a.b" && c.Tool != "gh.list" && c.Tool != "search" || len(c.Args) > limits.Args || seen[c.Seq] || !json.Valid(c.Args) {
				t.Errorf("the host was asked for %+v", c)
			}
			seen[c.Seq] = true
		}
		for _, r := range host.fetches {
			if len(r.Body) > limits.Request || seen[r.Seq] {
				t.Errorf("the host was asked for %+v", r)
			}
			seen[r.Seq] = true
		}
		for seq := range seen {
			if seq < 1 || seq > limits.Requests() || slices.Contains(host.refused, seq) {
				t.Errorf("request %d, refused %v", seq, host.refused)
			}
		}
		if len(host.calls) > limits.Calls || len(host.fetches) > limits.Fetches {
			t.Errorf("%d calls and %d fetches", len(host.calls), len(host.fetches))
		}
		size := 0
		for _, l := range got.Logs {
			if size += len(l.Text); !utf8.ValidString(l.Text) {
				t.Errorf("a line %q", l.Text)
			}
		}
		if size > limits.Logs+1024 {
			t.Errorf("a log of %d bytes", size)
		}
	})
}

// lingering lets others run before the end, so that the host is asked for what came before it.
type lingering struct{ words *bytes.Reader }

func (l *lingering) Read(p []byte) (int, error) {
	if l.words.Len() == 0 {
		for range 100 {
			runtime.Gosched()
		}
	}
	return l.words.Read(p)
}
