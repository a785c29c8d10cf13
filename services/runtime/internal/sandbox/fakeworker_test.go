package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// TestMain makes this test program a worker too: one that is not the engine, as after an escape.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case "jsworker":
		actAsWorker()
		os.Exit(0)
	case "unjailed":
		actUnjailed()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// actAsWorker claims to be jailed and then does what the script names.
func actAsWorker() {
	socket := os.NewFile(3, "pool")
	conn := wire.NewConn(socket)
	_ = conn.Send(wire.KindHello, wire.Hello{Version: wire.Version, Isolation: wire.Isolation{
		NoNewPrivs: true, Seccomp: true, Landlock: 7, Rlimits: true, FilesDenied: true, SocketDenied: true,
		ExecDenied: true, EmptyEnv: true, Namespaces: ownNamespaces(),
	}})
	_, body, err := conn.Receive(func(wire.Kind) int { return 8 << 20 })
	if err != nil {
		return
	}
	var run wire.Run
	if wire.Decode(body, &run) != nil {
		return
	}
	misbehave(socket, conn, run.Source)
}

func misbehave(socket *os.File, conn *wire.Conn, mode string) {
	call := func(seq int, tool string) {
		_ = conn.Send(wire.KindCall, wire.Call{Seq: seq, Tool: tool, Args: json.RawMessage(`{}`)})
	}
	raw := func(size uint32, kind wire.Kind, flags byte, body []byte) {
		head := binary.BigEndian.AppendUint32(nil, size)
		_, _ = socket.Write(append(append(head, byte(kind), flags), body...))
	}
	done := func() { _ = conn.Send(wire.KindDone, wire.Done{Value: json.RawMessage("1")}) }
	if after, ok := strings.CutPrefix(mode, "done, "); ok {
		done()
		linger(socket, conn, after)
		return
	}
	switch mode {
	case "garbage":
		_, _ = socket.Write(bytes.Repeat([]byte{0xff}, 100))
	case "oversize frame":
		raw(1<<30, wire.KindLog, 0, nil)
	case "endless message":
		for {
			raw(1002, wire.KindLog, 1, make([]byte, 1000))
		}
	case "empty parts":
		for range 100 {
			raw(2, wire.KindLog, 1, nil)
		}
	case "mixed parts":
		raw(3, wire.KindLog, 1, []byte("{"))
		raw(3, wire.KindCall, 0, []byte("}"))
	case "bad flags":
		raw(4, wire.KindDone, 2, []byte("{}"))
	case "unknown kind":
		raw(4, 99, 0, []byte("{}"))
	case "second hello":
		_ = conn.Send(wire.KindHello, wire.Hello{Version: wire.Version})
	case "a reply":
		_ = conn.Send(wire.KindReply, wire.Reply{Seq: 1})
	case "not JSON":
		raw(5, wire.KindDone, 0, []byte("{x}"))
	case "two values":
		raw(2+28, wire.KindDone, 0, []byte(`{"value":1,"usage":{}} {"a":1`)[:28])
	case "unknown field":
		_ = conn.Send(wire.KindDone, map[string]int{"value": 1, "admin": 1})
	case "no value":
		_ = conn.Send(wire.KindDone, map[string]struct{}{"usage": {}})
	case "duplicate seq":
		call(1, "a.b")
		call(1, "a.b")
	case "falling seq":
		call(2, "a.b")
		call(1, "a.b")
	case "no seq":
		call(0, "a.b")
	case "negative seq":
		call(-1, "a.b")
	case "seq beyond all requests":
		call(lastSeq+1, "a.b")
	case "seq far beyond":
		call(math.MaxInt, "a.b")
	case "last seq again":
		call(lastSeq, "a.b")
		call(lastSeq, "a.b")
	case "rising seq":
		for _, seq := range []int{3, 4, lastSeq} {
			call(seq, "a.b")
		}
		for range 3 {
			_, _, _ = conn.Receive(func(wire.Kind) int { return 1 << 20 })
		}
		done()
	case "ungranted tool":
		call(1, "root.shell")
	case "too many calls":
		for i := range 200 {
			call(i+1, "a.b")
		}
	case "odd code":
		_ = conn.Send(wire.KindFail, wire.Fail{Code: "<script>", Message: "x"})
	case "endless error":
		_ = conn.Send(wire.KindFail, wire.Fail{Code: "exception", Message: strings.Repeat("x", 1<<20)})
	case "log level":
		_ = conn.Send(wire.KindLog, wire.Log{Level: "root", Line: "x"})
	case "log flood":
		for {
			if conn.Send(wire.KindLog, wire.Log{Level: "info", Line: strings.Repeat("x", 1000)}) != nil {
				return
			}
		}
	case "closed socket":
		_ = socket.Close()
		time.Sleep(time.Hour)
	case "half a frame":
		raw(1000, wire.KindDone, 0, []byte("{"))
		time.Sleep(time.Hour)
	case "silence":
		time.Sleep(time.Hour)
	case "spin":
		if syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: 1, Max: 1}) != nil {
			return
		}
		signal.Ignore(syscall.SIGXCPU)
		for i := 1; i != 0; i = i*2 | 1 {
		}
	case "exit":
		os.Exit(3)
	case "killed":
		_ = syscall.Kill(0, syscall.SIGKILL) // its whole group; it cannot reach us
		os.Exit(9)
	case "stderr flood":
		for range 100 {
			_, _ = os.Stderr.Write(bytes.Repeat([]byte("secret "), 10_000))
		}
		os.Exit(2)
	case "done with a call open":
		call(1, "a.b")
		done()
		_ = conn.Send(wire.KindReady, wire.Ready{Scripts: 1})
		time.Sleep(time.Hour)
	case "deaf, done":
		for i := range 100 {
			call(i+1, "a.b")
		}
		done()
		time.Sleep(time.Hour)
	case "deaf":
		for i := range 100 { // replies pile up and nobody reads them
			call(i+1, "a.b")
		}
		time.Sleep(time.Hour)
	}
}

// lastSeq is the highest number that a request of a script with the usual limits may have.
var lastSeq = wire.Limits{}.WithDefaults().Requests()

// linger is what a worker does once its script is over.
func linger(socket *os.File, conn *wire.Conn, mode string) {
	after, ready := strings.CutPrefix(mode, "ready, ")
	if ready {
		_ = conn.Send(wire.KindReady, wire.Ready{Scripts: 1})
	}
	switch after {
	case "call":
		_ = conn.Send(wire.KindCall, wire.Call{Seq: 1, Tool: "a.b", Args: json.RawMessage(`{}`)})
	case "log":
		_ = conn.Send(wire.KindLog, wire.Log{Level: "info", Line: "x"})
	case "done":
		_ = conn.Send(wire.KindDone, wire.Done{Value: json.RawMessage("2")})
	case "garbage":
		_, _ = socket.Write(bytes.Repeat([]byte{0xff}, 100))
	case "wrong count":
		_ = conn.Send(wire.KindReady, wire.Ready{Scripts: 2})
	case "much time":
		_ = conn.Send(wire.KindReady, wire.Ready{Scripts: 1, CPUMicros: 1 << 40})
	case "less than no time":
		_ = conn.Send(wire.KindReady, wire.Ready{Scripts: 1, CPUMicros: -1})
	case "much memory":
		_ = conn.Send(wire.KindReady, wire.Ready{Scripts: 1, MemoryBytes: 1 << 40})
	case "long ready":
		_ = conn.Send(wire.KindReady, map[string]string{"scripts": strings.Repeat("x", 1<<20)})
	case "exit":
		return
	}
	time.Sleep(time.Hour)
}

func ownNamespaces() map[string]string {
	ids := map[string]string{}
	for _, kind := range namespaceKinds {
		ids[kind], _ = os.Readlink("/proc/self/ns/" + kind)
	}
	return ids
}

// newFakePool runs this program as its workers.
func newFakePool(t *testing.T, change ...func(*Config)) *Pool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return newPool(t, append(change, func(c *Config) { c.WorkerPath = self })...)
}

func TestHostileWorkers(t *testing.T) {
	p := newFakePool(t)
	for _, c := range []struct{ mode, want string }{
		{"garbage", CodeFault}, {"oversize frame", CodeFault}, {"endless message", CodeFault}, {"empty parts", CodeFault},
		{"mixed parts", CodeFault}, {"bad flags", CodeFault}, {"unknown kind", CodeFault}, {"second hello", CodeFault},
		{"a reply", CodeFault}, {"not JSON", CodeFault}, {"two values", CodeFault}, {"unknown field", CodeFault},
		{"no value", CodeFault}, {"duplicate seq", CodeFault}, {"falling seq", CodeFault}, {"no seq", CodeFault},
		{"negative seq", CodeFault}, {"seq beyond all requests", CodeFault}, {"seq far beyond", CodeFault}, {"last seq again", CodeFault}, {"ungranted tool", CodeFault}, {"too many calls", CodeFault},
		{"odd code", CodeFault}, {"endless error", CodeFault}, {"log level", CodeFault}, {"log flood", CodeFault}, {"closed socket", CodeFault}, {"half a frame", CodeTimeout},
		{"silence", CodeTimeout}, {"exit", CodeFault}, {"killed", CodeFault}, {"stderr flood", CodeFault}, {"deaf", CodeTimeout},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			s := script(c.mode)
			if c.want == CodeTimeout {
				s.Limits.Wall = 300 * time.Millisecond
			}
			host := &fakeHost{tool: bigAnswer}
			_, err := p.Run(t.Context(), c.mode, s, host)
			if code := codeOf(err); code != c.want {
				t.Errorf("code %q (%v), want %q", code, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Error("what the worker printed reached the caller")
			}
			for _, call := range host.calls {
				if call.Tool != "a.b" {
					t.Errorf("the host was asked for %q", call.Tool)
				}
			}
		})
	}
}
