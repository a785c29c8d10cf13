package host_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
)

// What went wrong elsewhere, tried here. Each subtest is named by the report.
func TestReported(t *testing.T) {
	t.Run("E2B#1031", func(t *testing.T) { // a time-out killed the leader; its server kept the port
		b := newBox(t, `network: "all"`)
		port := freePort(t)
		e := b.run(machine.ExecArgs{Timeout: 1, Command: fmt.Sprintf("setsid python3 -c 'import socket,time\ns=socket.socket(); s.setsockopt(1,2,1); s.bind((\"127.0.0.1\",%d)); s.listen(); open(\"up\",\"w\").close(); time.sleep(600)' & while :; do sleep 1; done", port)})
		if e.Reason != "timeout" || e.Survivors != 0 {
			t.Errorf("%+v", e)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatalf("the port is still taken: %v", err)
		}
		l.Close()
		if _, err := os.Stat(filepath.Join(b.volume, "up")); err != nil {
			t.Error("the server never ran, so nothing was tried")
		}
	})
	t.Run("E2B#1352", func(t *testing.T) { // output stalled after a reconnect, 9 of 12 times
		b := newBox(t, "")
		o := b.order("exec", machine.ExecArgs{Background: true, Command: "i=0; while [ $i -lt 4000 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done; while [ ! -e go ]; do sleep 0.02; done; echo end"})
		e := result[machine.Exec](t, b.do(o))
		var got []byte
		at, end := int64(0), (*machine.Exec)(nil)
		read := func(wait int) {
			out := result[machine.Output](t, b.do(b.order("exec_read", machine.ExecReadArgs{Exec: e.Exec, After: at, Max: 7001, Wait: wait})))
			for _, p := range out.Pieces {
				raw, err := base64.StdEncoding.DecodeString(p.Base64)
				if err != nil {
					t.Fatal(err)
				}
				got = append(append(got, p.Text...), raw...)
			}
			at, end = out.Next, out.End
		}
		for range 12 {
			b.Close()
			b.begin()
			if err := b.Open(t.Context(), b.lease); err != nil {
				t.Fatal(err)
			}
			read(1)
		}
		if err := os.WriteFile(filepath.Join(b.volume, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for end == nil {
			read(5)
		}
		sum := sha256.Sum256(got)
		if hex.EncodeToString(sum[:]) != end.SHA256 || int64(len(got)) != end.Bytes || end.Lost != 0 {
			t.Errorf("%d bytes with another digest than %+v", len(got), end)
		}
		// The order that began it is answered from its receipt, however often.
		if again := result[machine.Exec](t, b.do(o)); again.State != "exited" || again.SHA256 != end.SHA256 {
			t.Errorf("asked again: %+v", again)
		}
	})
	t.Run("daytona#2602", func(t *testing.T) { // a time-out of 2 s came after 5
		b := newBox(t, "")
		if e := b.run(machine.ExecArgs{Timeout: 1, Argv: []string{"sleep", "600"}}); e.Reason != "timeout" || e.Millis > 60_000 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("daytona#5144", func(t *testing.T) { // a time-out dropped the output; streams were merged, and unbounded
		b := newBox(t, "")
		if e := b.run(machine.ExecArgs{Timeout: 1, Command: "echo out; echo err >&2; sleep 600"}); e.Reason != "timeout" || e.Stdout != "out\n" || e.Stderr != "err\n" {
			t.Errorf("%+v", e)
		}
		if e := b.run(machine.ExecArgs{Timeout: 2, Command: "yes aaaaaaaaaaaaaaa | head -c 3000000; sleep 600"}); e.Reason != "timeout" || !e.Clipped || len(e.Stdout) > 100_000 || e.Bytes != 3_000_000 {
			t.Errorf("reason %s, %d bytes, %d shown", e.Reason, e.Bytes, len(e.Stdout))
		}
	})
	t.Run("TanStack_ai#1085", func(t *testing.T) { // each poll loaded the whole log again
		b := newBox(t, "")
		e := result[machine.Exec](t, b.do(b.order("exec", machine.ExecArgs{Background: true, Command: "printf 0123456789; while [ ! -e go ]; do sleep 0.02; done; printf abc"})))
		buskit.Eventually(t, "the first output", func() bool {
			out := result[machine.Output](t, b.do(b.order("exec_read", machine.ExecReadArgs{Exec: e.Exec, After: 4, Wait: 1})))
			return out.Next == 10 && len(out.Pieces) == 1 && out.Pieces[0].Text == "456789"
		})
		if err := os.WriteFile(filepath.Join(b.volume, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		buskit.Eventually(t, "only what is new", func() bool {
			out := result[machine.Output](t, b.do(b.order("exec_read", machine.ExecReadArgs{Exec: e.Exec, After: 10, Wait: 1})))
			return out.Next == 13 && out.Pieces[0].Text == "abc"
		})
	})
	t.Run("codex#4337", func(t *testing.T) { // children held the pipe, and the command never returned
		b := newBox(t, "")
		e := b.sh("(trap '' TERM HUP; sleep 600) & setsid sleep 601 & echo done")
		if e.Reason != "exited" || e.Code == nil || *e.Code != 0 || e.Stdout != "done\n" || e.Survivors != 0 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("codex#9292", func(t *testing.T) { // isolation that was not there was passed over, or broke every command
		b := newBox(t, "")
		e := b.sh("true")
		for _, what := range []string{"no_new_privs", "seccomp"} {
			if !strings.Contains(e.Isolation, what) {
				t.Errorf("isolation %s without %s", e.Isolation, what)
			}
		}
		if is := b.Manifest().Isolation; is.Cgroup {
			return // there is nothing to miss on this machine
		}
		b.policy = "min_isolation: [cgroup]"
		if h, err := b.try(); problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "min_isolation") {
			t.Errorf("less than the policy wants is taken: %v", err)
		} else {
			h.Close()
		}
	})
	t.Run("sandbox-runtime#221", func(t *testing.T) { // a link in .git/hooks broke every command
		b := newBox(t, "")
		e := b.sh("mkdir -p .git/hooks && ln -s /nowhere/hook .git/hooks/pre-commit && ln -s ../../etc .git/hooks/up && ls .git/hooks && echo works")
		if !strings.Contains(e.Stdout, "works") {
			t.Errorf("%+v", e)
		}
	})
	t.Run("sandbox-runtime#149", func(t *testing.T) { // a directory that was not to be read could be written
		outside := shortDir(t)
		if err := os.Chmod(outside, 0o777); err != nil {
			t.Fatal(err)
		}
		b := newBox(t, "")
		if e := b.sh("echo x > " + outside + "/x; ls " + outside); e.Code == nil || *e.Code == 0 {
			t.Errorf("%+v", e)
		}
		if _, err := os.Stat(filepath.Join(outside, "x")); err == nil {
			t.Error("a command wrote outside its volume")
		}
	})
	for _, ref := range []string{"modelcontextprotocol_servers#1845", "DesktopCommanderMCP#420"} { // links led out, also to what was not there yet
		t.Run(ref, func(t *testing.T) {
			outside := shortDir(t)
			if err := os.Chmod(outside, 0o777); err != nil {
				t.Fatal(err)
			}
			b := newBox(t, "")
			if e := b.sh(fmt.Sprintf("ln -s %s out; ln -s %s/new new; ln -s ../../../../../..%s/up up; ln -s out/deep deep", outside, outside, outside)); *e.Code != 0 {
				t.Fatalf("%+v", e)
			}
			for _, path := range []string{"out/a", "new", "up", "deep", "out/x/y"} {
				if a := b.do(b.order("write_file", machine.WriteFileArgs{Path: path, Content: "x"})); a.State == connector.Done && !a.ToolError {
					t.Errorf("%s is written: %s", path, a.Result)
				}
				if a := b.do(b.order("read_file", machine.ReadFileArgs{Path: path})); a.State == connector.Done && !a.ToolError {
					t.Errorf("%s is read: %s", path, a.Result)
				}
			}
			if left, _ := os.ReadDir(outside); len(left) != 0 {
				t.Errorf("outside there is %v", left)
			}
		})
	}
	t.Run("qwen-code#3839", func(t *testing.T) { // a write went over a file that had changed since it was read
		b := newBox(t, "")
		first := result[struct{ SHA256 string }](t, b.do(b.order("write_file", machine.WriteFileArgs{Path: "a", Content: "one"})))
		b.sh("echo two > a")
		a := b.do(b.order("write_file", machine.WriteFileArgs{Path: "a", Content: "three", IfMatch: first.SHA256}))
		if !a.ToolError || !bytes.Contains(a.Result, []byte("stale")) {
			t.Errorf("%+v", a)
		}
		if e := b.sh("cat a"); e.Stdout != "two\n" {
			t.Errorf("the file is %q", e.Stdout)
		}
	})
	t.Run("agent-sandbox#1352", func(t *testing.T) { // an error at the gateway ran a command up to six times
		b := newBox(t, "execs: 256")
		const commands, retries, atOnce = 1000, 3, 16
		var all sync.WaitGroup
		places := make(chan struct{}, atOnce*retries)
		for range commands {
			o := b.order("exec", machine.ExecArgs{Command: "echo x >> counter"})
			for range retries {
				places <- struct{}{}
				all.Go(func() {
					defer func() { <-places }()
					if a := b.do(o); a.State != connector.Done || a.ToolError {
						t.Errorf("%+v %s", a, a.Result)
					}
				})
			}
		}
		all.Wait()
		if e := b.sh("wc -l < counter"); strings.TrimSpace(e.Stdout) != fmt.Sprint(commands) {
			t.Errorf("%s commands ran, want %d, each asked for %d times", strings.TrimSpace(e.Stdout), commands, retries)
		}
	})
	t.Run("software-agent-sdk#3036", func(t *testing.T) { // nothing worked, and the health check said it did
		b := newBox(t, "")
		if err := b.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(b.home, "volumes", ".probe")); err != nil {
			t.Fatal(err)
		}
		if err := b.Probe(t.Context()); err == nil {
			t.Error("a machine that cannot run a command says that it works")
		}
	})
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
