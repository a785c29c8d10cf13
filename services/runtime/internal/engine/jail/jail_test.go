package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// TestMain is also the program that is jailed: Close cannot be undone.
func TestMain(m *testing.M) {
	switch os.Getenv("JAILED") {
	case "":
		os.Exit(m.Run())
	case "yes":
		fmt.Println("faults", Close(Bounds{Data: 1 << 40, CPU: 60}).Faults)
		for name, try := range attempts {
			fmt.Println(name, try())
		}
		for _, number := range others() {
			if err := call(number)(); err != unix.EPERM {
				fmt.Println("not refused:", number, err)
			}
		}
		fmt.Println("computed", computes())
	case "no": // the control: the same, without a jail
		for name, try := range attempts {
			fmt.Println(name, try())
		}
	}
	os.Exit(0)
}

// others are the numbers of every call that the filter does not name, those that do not exist among them, with room for
// kernels to come.
func others() []uintptr {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil
	}
	named := map[int]bool{}
	for _, name := range append([]string{"clone", "mmap"}, allowed...) { // these two are tried with arguments
		if number, known := info.SyscallNames[name]; known {
			named[number] = true
		}
	}
	if runtime.GOARCH == "amd64" {
		// uretprobe and uprobe come before any filter, and kill a process that was not probed.
		named[335], named[336] = true, true
	}
	var numbers []uintptr
	for n := range 1024 {
		if !named[n] {
			numbers = append(numbers, uintptr(n))
		}
	}
	return numbers
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

// attempts are ways out. Each has to be refused, not merely to fail; and none may do harm where it succeeds, because the
// control makes them without a jail.
var attempts = map[string]func() error{
	"open":        tryFile,
	"socket":      trySocket,
	"exec":        tryExec,
	"write":       func() error { return os.WriteFile("/dev/null", nil, 0o600) },
	"stat":        func() error { var st unix.Stat_t; return unix.Stat("/etc/passwd", &st) },
	"unix socket": func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"fork":        fork,
	"clone3":      call(unix.SYS_CLONE3, 0, 0),
	"unshare":     func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"ptrace":      call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1),
	"read memory": call(unix.SYS_PROCESS_VM_READV, 1, 0, 0, 0, 0, 0),
	"kill":        func() error { return unix.Kill(os.Getpid(), 0) },
	"limits":      func() error { return unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: 1e6, Max: 1e6}) },
	"mount":       func() error { return unix.Mount("none", "/no such place", "tmpfs", 0, "") },
	"memfd":       func() error { _, err := unix.MemfdCreate("x", 0); return err },
	"io_uring":    call(unix.SYS_IO_URING_SETUP, 1, 0),
	"bpf":         call(unix.SYS_BPF, 0, 0, 0),
	"keyring":     call(unix.SYS_KEYCTL, 0, 0),
	"prctl":       func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
	"ioctl":       func() error { _, err := unix.IoctlGetInt(0, unix.TIOCGWINSZ); return err },
	"code":        call(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0)),
	"map a file":  call(unix.SYS_MMAP, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE, 1),
}

// fork makes a process that ends at once.
func fork() error {
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return errOf(e)
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
	run := func(jailed string) map[string]bool {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = []string{"JAILED=" + jailed}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("jailed %s:\n%s", jailed, out)
		lines := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			lines[strings.TrimSpace(line)] = true
		}
		return lines
	}
	lines := run("yes")
	for _, want := range []string{"faults []", "computed 28"} {
		if !lines[want] {
			t.Errorf("missing %q", want)
		}
	}
	for line := range lines {
		if strings.HasPrefix(line, "not refused:") {
			t.Error(line)
		}
	}
	for name := range attempts {
		if !lines[name+" operation not permitted"] && !lines[name+" open /dev/null: operation not permitted"] {
			t.Errorf("%s is not refused", name)
		}
	}
	// Without the jail these are possible here, so it was the jail that refused them. The rest may be refused to us too.
	free := run("no")
	for _, name := range []string{"open", "socket", "write", "stat", "unix socket", "kill", "memfd", "prctl", "code", "fork"} {
		if !free[name+" <nil>"] {
			t.Errorf("%s fails without the jail: this test shows nothing", name)
		}
	}
}
