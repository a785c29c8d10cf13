package host_test

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
)

// What a command tries, and what becomes of it.
func TestHostileCommands(t *testing.T) {
	b := newBox(t, "execs: 4")
	secret := filepath.Join(b.home, "connector.seed")
	if err := os.WriteFile(secret, []byte("SUSECRET"), 0o644); err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{
		"reads the connector's key":  "cat " + secret,
		"reads its own receipt":      "cat " + b.home + "/attachments/*/execs/*/receipt.json",
		"lists the connector's home": "ls " + b.home,
		"asks the shim":              "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"" + b.home + "/attachments/" + string(b.lease.Attachment) + "/sock\")'",
		"reads the launcher":         "cat /proc/1/environ /proc/1/maps; ls -l /proc/1/fd/ && ls /proc/1/fd/3",
		"sees other processes":       "ls -d /proc/[0-9]* | grep -v '/proc/1$' | wc -l | grep -x -v '[0-9]' ",
		"traces the launcher":        "python3 -c 'import ctypes; r=ctypes.CDLL(None,use_errno=True).ptrace(16,1,0,0); raise SystemExit(1 if r==-1 else 0)'",
		"ends the launcher":          "for s in 9 11 15 6 3 1 10 5 4 8 7 31; do kill -$s 1; done; exit 1",
		"mounts":                     "mount -t tmpfs none .tmp",
		"makes a namespace":          "unshare -r true",
		"gets rights":                "su root -c true </dev/null",
		"reaches the network":        "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\",80),2)'",
		"lists the volumes":          "ls ..",
		"writes to /etc":             "touch /etc/execwarden-was-here",
		"writes to /usr":             "touch /usr/execwarden-was-here",
		"leaves its group":           "for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/unified/cgroup.procs; do echo $$ > $f && exit 0; done; exit 1",
	}
	// A service of the machine that lets everybody connect. Only root can put one where services are.
	if path := fmt.Sprintf("/run/execwarden-test-%d.sock", os.Getpid()); os.Geteuid() == 0 {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		commands["asks a service of the machine"] = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"" + path + "\")'"
	}
	for name, command := range commands {
		e := b.sh(command)
		if e.Code == nil || *e.Code == 0 || strings.Contains(e.Stdout, "SUSECRET") {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if e := b.sh("echo fine"); e.Stdout != "fine\n" {
		t.Errorf("after all of it: %+v", e)
	}
	if left, _ := filepath.Glob("/etc/execwarden-was-here"); len(left) > 0 {
		t.Error("a command wrote to /etc")
	}
}

// Output of any sort comes through as it is, and a tree of any sort is ended.
func TestHostileOutput(t *testing.T) {
	b := newBox(t, "processes: 1000")
	if e := b.sh("head -c 10000000 /dev/zero | tr '\\0' a; echo"); e.Bytes != 10_000_001 || e.Lost != 0 || !e.Clipped {
		t.Errorf("a line of 10 MB: %d bytes, %d lost", e.Bytes, e.Lost)
	}
	if e := b.sh("printf '\\303'; sleep 0.1; printf '\\251'; printf '\\377'"); e.Stdout != "é\uFFFD" || e.Bytes != 3 {
		t.Errorf("a character in two pieces: %q", e.Stdout)
	}
	raw := b.do(b.order("exec_read", machine.ExecReadArgs{Exec: b.sh("printf 'a\\000b\\377c'").Exec}))
	out := result[machine.Output](t, raw)
	if data, err := base64.StdEncoding.DecodeString(out.Pieces[0].Base64); err != nil || string(data) != "a\x00b\xffc" {
		t.Errorf("bytes that are no text: %q, %v", data, err)
	}
	e := b.run(machine.ExecArgs{Timeout: 2, Command: "f() { f | f & }; f; sleep 600"})
	if e.Reason != "timeout" || e.Survivors != 0 {
		t.Errorf("a fork bomb: %+v", e)
	}
	if n := processes(t, b.volume); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if e := b.sh("i=0; while [ $i -lt 10000 ]; do : > f$i; i=$((i+1)); done; ls | wc -l"); strings.TrimSpace(e.Stdout) != "10000" {
		t.Errorf("10,000 files: %+v", e)
	}
	list := result[struct {
		Entries   []struct{ Path string }
		Truncated string
	}](t, b.do(b.order("list", machine.ListArgs{})))
	if len(list.Entries) != 2000 || list.Truncated == "" {
		t.Errorf("%d entries, truncated %q", len(list.Entries), list.Truncated)
	}
}

// Without control groups nothing ends all of a command's processes at once. They are stopped first, since a fork bomb begins
// more than are found.
func TestForkBombWithoutGroups(t *testing.T) {
	b := newBox(t, "")
	b.WithoutGroups()
	b.lease = connector.Lease{Attachment: id.New[id.Attachment](), Volume: "other", Epoch: 1}
	b.volume = filepath.Join(b.home, "volumes", "other")
	if err := b.Open(t.Context(), b.lease); err != nil {
		t.Fatal(err)
	}
	beside := result[machine.Exec](t, b.do(b.order("exec", machine.ExecArgs{Background: true, Command: "read go; echo on"})))
	if e := b.run(machine.ExecArgs{Timeout: 2, Command: "f() { f | f & }; f; sleep 600"}); e.Reason != "timeout" || e.Survivors != 0 || strings.Contains(e.Isolation, "cgroup") {
		t.Errorf("a fork bomb: %+v", e)
	}
	b.do(b.order("exec_write", machine.ExecWriteArgs{Exec: beside.Exec, Data: "\n"}))
	for out := (machine.Output{}); out.End == nil; {
		if out = result[machine.Output](t, b.do(b.order("exec_read", machine.ExecReadArgs{Exec: beside.Exec, Wait: 10}))); out.End != nil && out.End.Reason != "exited" {
			t.Errorf("the command beside it: %+v", out.End)
		}
	}
	if n := processes(t, b.volume); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// processes counts those whose directory is below a path.
func processes(t *testing.T, below string) (n int) {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, p := range all {
		if to, err := os.Readlink(p); err == nil && strings.HasPrefix(to, below) {
			n++
		}
	}
	return n
}

// Arguments that a model made wrong are answered with what is wrong, and nothing is begun.
func TestHostileArguments(t *testing.T) {
	b := newBox(t, "env: [GOOD]\nshell: false\nprograms: [/usr/bin/true, /bin/true]")
	for name, c := range map[string]struct {
		tool string
		args any
		want string
	}{
		"neither":           {"exec", map[string]any{}, "argv or command"},
		"both":              {"exec", map[string]any{"argv": []string{"true"}, "command": "true"}, "argv or command"},
		"a shell":           {"exec", map[string]any{"command": "true"}, "rule shell"},
		"another program":   {"exec", map[string]any{"argv": []string{"/bin/ls"}}, "rule programs"},
		"a program by link": {"exec", map[string]any{"argv": []string{"ls"}}, "rule programs"},
		"a variable":        {"exec", map[string]any{"argv": []string{"true"}, "env": map[string]string{"BAD": "1"}}, "rule env"},
		"a loader":          {"exec", map[string]any{"argv": []string{"true"}, "env": map[string]string{"LD_PRELOAD": "x"}}, "rule env"},
		"no variable":       {"exec", map[string]any{"argv": []string{"true"}, "env": map[string]string{"A=B": "1"}}, "no name of a variable"},
		"outside":           {"exec", map[string]any{"argv": []string{"true"}, "cwd": "/etc"}, "rule roots"},
		"outside by dots":   {"exec", map[string]any{"argv": []string{"true"}, "cwd": "../.."}, "rule roots"},
		"no directory":      {"exec", map[string]any{"argv": []string{"true"}, "cwd": "nowhere"}, "there is no"},
		"a zero byte":       {"exec", map[string]any{"argv": []string{"true", "a\x00b"}}, "zero byte"},
		"no time":           {"exec", map[string]any{"argv": []string{"true"}, "timeout_s": -1}, "timeout_s"},
		"too long":          {"exec", map[string]any{"argv": []string{"true", strings.Repeat("a", 200_000)}}, "over"},
		"unknown field":     {"exec", map[string]any{"argv": []string{"true"}, "as": "root"}, "unknown field"},
		"unknown tool":      {"reboot", map[string]any{}, "no tool"},
		"unknown command":   {"exec_read", map[string]any{"exec": "call_none"}, "no command"},
		"no id":             {"exec_read", map[string]any{"exec": "../../x"}, "no command's id"},
		"a person's shell":  {"exec_write", map[string]any{"exec": "vis_0197f0c2aaaa7bbb8ccc0ddd0eee0fff", "data": "x"}, "no command's id"},
		"the browser":       {"exec_write", map[string]any{"exec": "browser-0197f0c2aaaa7bbb8ccc0ddd0eee0fff", "data": "x"}, "no command's id"},
		"no signal":         {"exec_signal", map[string]any{"exec": "call_none", "signal": "STOPPED"}, "no signal"},
		"a device":          {"read_file", map[string]any{"path": "/dev/zero"}, "rule roots"},
		"proc":              {"read_file", map[string]any{"path": "/proc/self/environ"}, "rule roots"},
		"no pattern":        {"grep", map[string]any{"pattern": "("}, "RE2"},
		"no base64":         {"write_file", map[string]any{"path": "a", "content": "%", "encoding": "base64"}, "base64"},
		"no mode":           {"write_file", map[string]any{"path": "a", "content": "x", "mode": "9999"}, "octal"},
	} {
		a := b.do(b.order(c.tool, c.args))
		if text := a.Message + string(a.Result); !strings.Contains(text, c.want) || a.State == connector.Done && !a.ToolError {
			t.Errorf("%s: %+v %s, want %q", name, a, a.Result, c.want)
		}
	}
	if e := b.run(machine.ExecArgs{Argv: []string{"true"}, Env: map[string]string{"GOOD": "1"}}); e.Code == nil || *e.Code != 0 {
		t.Errorf("what is allowed: %+v", e)
	}
}

// Files that are none are refused without waiting for them.
func TestSpecialFiles(t *testing.T) {
	b := newBox(t, "")
	if err := unix.Mkfifo(filepath.Join(b.volume, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	device := true
	if err := unix.Mknod(filepath.Join(b.volume, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Logf("no device, since only root makes one: %v", err)
		device = false
	}
	if e := b.sh("ln -s pipe link; ln -s /proc/self/environ env; ln -s loop loop; mkdir dir; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'"); *e.Code != 0 {
		t.Fatalf("%+v", e)
	}
	for _, path := range []string{"pipe", "null", "link", "env", "loop", "dir", "sock"} {
		if path == "null" && !device {
			continue
		}
		for _, tool := range []string{"read_file", "edit_file", "write_file"} {
			args := map[string]any{"path": path}
			switch tool {
			case "edit_file":
				args["edits"] = []map[string]string{{"old": "a", "new": "b"}}
			case "write_file":
				args["content"] = "x"
			}
			if a := b.do(b.order(tool, args)); a.State == connector.Done && !a.ToolError {
				t.Errorf("%s of %s: %s", tool, path, a.Result)
			}
		}
	}
}

// A machine that loses what looks after its commands does not know how those ended, says so, and begins none again.
func TestShimKilled(t *testing.T) {
	b := newBox(t, "")
	o := b.order("exec", machine.ExecArgs{Command: "echo begun >> log; sleep 600"})
	o.Patience = 0
	if a := b.Do(t.Context(), o); a.State != connector.UnderWay {
		t.Fatalf("%+v", a)
	}
	buskit.Eventually(t, "it runs", func() bool { _, err := os.Stat(filepath.Join(b.volume, "log")); return err == nil })
	killShim(t, b)
	buskit.Eventually(t, "nothing of it is left", func() bool { return processes(t, b.volume) == 0 })
	b.Close()
	b.begin()
	if err := b.Open(t.Context(), b.lease); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if a := b.do(o); a.State != connector.Unknown || a.Code != string(problem.Unknown) {
			t.Errorf("%+v", a)
		}
	}
	if raw, _ := os.ReadFile(filepath.Join(b.volume, "log")); string(raw) != "begun\n" {
		t.Errorf("it ran again: %q", raw)
	}
	if e := b.sh("echo works"); e.Stdout != "works\n" {
		t.Errorf("after it: %+v", e)
	}
}

// killShim kills the shim of the attachment, and with it the launcher.
func killShim(t *testing.T, b *box) {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range all {
		raw, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(raw), string(b.lease.Attachment)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A call that is called off before its order comes is never begun; one that runs is ended.
func TestCancel(t *testing.T) {
	b := newBox(t, "")
	early := b.order("exec", machine.ExecArgs{Command: "touch early"})
	if a := b.Cancel(t.Context(), connector.Cancel{Call: early.Call}); a.State != connector.NotBegun {
		t.Errorf("%+v", a)
	}
	if a := b.do(early); a.State != connector.Refused || a.Code != string(problem.Cancelled) {
		t.Errorf("an order after its cancellation: %+v", a)
	}
	file := b.order("write_file", machine.WriteFileArgs{Path: "early", Content: "x"})
	if a := b.Cancel(t.Context(), connector.Cancel{Call: file.Call}); a.State != connector.NotBegun {
		t.Errorf("%+v", a)
	}
	if a := b.do(file); a.State != connector.Refused {
		t.Errorf("a write after its cancellation: %+v", a)
	}
	if _, err := os.Stat(filepath.Join(b.volume, "early")); err == nil {
		t.Error("it was begun all the same")
	}
	late := b.order("exec", machine.ExecArgs{Command: "sleep 600"})
	late.Patience = 0
	b.Do(t.Context(), late)
	a := b.Cancel(t.Context(), connector.Cancel{Call: late.Call})
	if e := result[machine.Exec](t, a); e.Reason != "cancelled" || e.Survivors != 0 {
		t.Errorf("%+v", e)
	}
}

// One call is one order: the same again is answered from its receipt, another under its name is refused.
func TestReceipts(t *testing.T) {
	b := newBox(t, "")
	for name, o := range map[string]connector.Order{
		"a command": b.order("exec", machine.ExecArgs{Command: "echo x >> n; wc -l < n"}),
		"a write":   b.order("write_file", machine.WriteFileArgs{Path: "new", Content: "x", IfMatch: "absent"}),
	} {
		only := o
		only.Only = true
		if a := b.do(only); a.State != connector.NotBegun {
			t.Errorf("%s before it was begun: %+v", name, a)
		}
		first := b.do(o)
		if first.State != connector.Done || first.ToolError {
			t.Fatalf("%s: %+v %s", name, first, first.Result)
		}
		for _, again := range []connector.Order{o, only} {
			if a := b.do(again); string(a.Result) != string(first.Result) {
				t.Errorf("%s again: %s, want %s", name, a.Result, first.Result)
			}
		}
		other := o
		other.Args = []byte(fmt.Sprintf(`{"command":"true","cwd":%q}`, "."))
		if o.Tool == "machine.write_file" {
			other.Args = []byte(`{"path":"other","content":"y"}`)
		}
		if a := b.do(other); !strings.Contains(a.Message+string(a.Result), "begun under this") {
			t.Errorf("%s, another under its name: %+v %s", name, a, a.Result)
		}
	}
}

// An attachment's end ends everything of it, also what left its session and ignores being asked.
func TestEnd(t *testing.T) {
	b := newBox(t, "")
	o := b.order("exec", machine.ExecArgs{Background: true, Command: "trap '' TERM; for i in 1 2 3; do (setsid sh -c 'trap \"\" TERM; cd " + b.volume + "; while :; do sleep 1; done' &) ; done; touch up; while :; do sleep 1; done"})
	b.do(o)
	buskit.Eventually(t, "it runs", func() bool { _, err := os.Stat(filepath.Join(b.volume, "up")); return err == nil })
	ended, err := b.End(t.Context(), connector.End{Attachment: b.lease.Attachment, Epoch: 1, Revoked: true})
	if err != nil || ended.Survivors != 0 || ended.Killed < 4 {
		t.Errorf("%+v, %v", ended, err)
	}
	if n := processes(t, b.volume); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if a := b.do(b.order("exec", machine.ExecArgs{Command: "true"})); a.State != connector.Refused {
		t.Errorf("after the end: %+v", a)
	}
	if again, err := b.End(t.Context(), connector.End{Attachment: b.lease.Attachment}); err != nil || again.Survivors != 0 {
		t.Errorf("ended again: %+v, %v", again, err)
	}
}

// However often attachments are revoked, nothing of them is left.
func TestHundredRevocations(t *testing.T) {
	b := newBox(t, "max_volumes: 64")
	for n := range 100 {
		if n > 0 {
			b.lease = connector.Lease{Attachment: id.New[id.Attachment](), Volume: "main", Epoch: n + 1}
			if err := b.Open(t.Context(), b.lease); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			b.do(b.order("exec", machine.ExecArgs{Background: true, Command: "trap '' TERM; setsid sleep 600 & while :; do sleep 1; done"}))
		}
		ended, err := b.End(t.Context(), connector.End{Attachment: b.lease.Attachment, Revoked: true})
		if err != nil || ended.Survivors != 0 {
			t.Fatalf("revocation %d: %+v, %v", n, ended, err)
		}
	}
	if n := processes(t, b.volume); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}
