package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is also the program that is jailed: Close cannot be undone.
func TestMain(m *testing.M) {
	if os.Getenv("JAILED") == "" {
		os.Exit(m.Run())
	}
	is := Close(Bounds{Data: 1 << 40, CPU: 60})
	fmt.Println("faults", is.Faults)
	for name, try := range attempts {
		fmt.Println(name, try())
	}
	fmt.Println("computed", computes())
	os.Exit(0)
}

func errOf(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func call(number uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		_, _, e := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		return errOf(e)
	}
}

// attempts are ways out. Each has to be refused, not merely to fail.
var attempts = map[string]func() error{
	"open":        tryFile,
	"socket":      trySocket,
	"exec":        tryExec,
	"write":       func() error { return os.WriteFile("/tmp/jail-test", nil, 0o600) },
	"stat":        func() error { var st unix.Stat_t; return unix.Stat("/etc/passwd", &st) },
	"unix socket": func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"fork":        call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)),
	"clone3":      call(unix.SYS_CLONE3, 0, 0),
	"unshare":     func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"ptrace":      call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1),
	"read memory": call(unix.SYS_PROCESS_VM_READV, 1, 0, 0, 0, 0, 0),
	"kill":        func() error { return unix.Kill(1, 0) },
	"limits":      func() error { return unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1e6, Max: 1e6}) },
	"mount":       func() error { return unix.Mount("none", "/", "tmpfs", 0, "") },
	"memfd":       func() error { _, err := unix.MemfdCreate("x", 0); return err },
	"io_uring":    call(unix.SYS_IO_URING_SETUP, 1, 0),
	"bpf":         call(unix.SYS_BPF, 0, 0, 0),
	"keyring":     call(unix.SYS_KEYCTL, 0, 0),
	"prctl":       func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
	"ioctl":       func() error { _, err := unix.IoctlGetInt(0, unix.TIOCGWINSZ); return err },
}

// computes shows that a jailed program still can: memory, goroutines on more threads, timers.
func computes() int {
	results := make(chan int)
	for i := range 8 {
		go func() {
			b := make([]byte, 1<<20)
			b[i] = byte(i)
			results <- int(b[i])
		}()
	}
	sum := 0
	for range 8 {
		sum += <-results
	}
	return sum
}

func TestNoWayOut(t *testing.T) {
	// This test, built as the worker is: with cgo (and so under -race) a new thread begins with clone3, which a filter
	// cannot look into and refuses.
	self := filepath.Join(t.TempDir(), "jailed")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", self, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = []string{"JAILED=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		lines[strings.TrimSpace(line)] = true
	}
	for _, want := range []string{"faults []", "computed 28"} {
		if !lines[want] {
			t.Errorf("missing %q", want)
		}
	}
	for name := range attempts {
		if !lines[name+" operation not permitted"] && !lines[name+" open /tmp/jail-test: operation not permitted"] {
			t.Errorf("%s is not refused", name)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}
