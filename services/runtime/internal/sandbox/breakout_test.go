package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// rawCall is a system call, with numbers and strings as its arguments. None does harm where it succeeds.
type rawCall struct {
	name string
	args []any
	// free says that a process without a jail can do it here, whoever it is.
	free bool
}

// rawCalls are the ways to a file, a network, a program and another process.
var rawCalls = []rawCall{
	{"open", []any{"/etc/passwd", 0}, true},
	{"openat", []any{unix.AT_FDCWD, "/etc/passwd", 0}, true},
	{"openat2", []any{unix.AT_FDCWD, "/etc/passwd", strings.Repeat("\x00", 24), 24}, true},
	{"creat", []any{"/dev/null", 0}, true},
	{"stat", []any{"/", strings.Repeat("\x00", 256)}, true},
	{"newfstatat", []any{unix.AT_FDCWD, "/", strings.Repeat("\x00", 256), 0}, true},
	{"statx", []any{unix.AT_FDCWD, "/", 0, 0, strings.Repeat("\x00", 256)}, true},
	{"access", []any{"/", 0}, true},
	{"readlink", []any{"/proc/self/exe", strings.Repeat("\x00", 64), 64}, true},
	{"getcwd", []any{strings.Repeat("\x00", 4096), 4096}, true},
	{"chdir", []any{"/"}, true},
	{"name_to_handle_at", []any{unix.AT_FDCWD, "/", "", "", 0}, false},
	{"open_by_handle_at", []any{3, "", 0}, false},
	{"memfd_create", []any{"x", 0}, true},
	{"inotify_init1", []any{0}, true},
	{"socket", []any{unix.AF_INET, unix.SOCK_STREAM, 0}, true},
	{"socket", []any{unix.AF_INET6, unix.SOCK_DGRAM, 0}, true},
	{"socket", []any{unix.AF_UNIX, unix.SOCK_STREAM, 0}, true},
	{"socket", []any{unix.AF_NETLINK, unix.SOCK_RAW, 0}, true},
	{"socket", []any{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, false},
	{"socketpair", []any{unix.AF_UNIX, unix.SOCK_STREAM, 0, strings.Repeat("\x00", 8)}, true},
	{"connect", []any{3, "\x02\x00\x00\x01\x7f\x00\x00\x01", 16}, false}, // what is there already goes nowhere else
	{"bind", []any{3, "\x02\x00\x00\x01\x7f\x00\x00\x01", 16}, false},
	{"sendmsg", []any{3, strings.Repeat("\x00", 64), 0}, false}, // which could carry a descriptor out
	{"recvmsg", []any{3, strings.Repeat("\x00", 64), unix.MSG_DONTWAIT}, false},
	{"sendto", []any{3, "", 0, 0, 0, 0}, false},
	{"io_uring_setup", []any{1, strings.Repeat("\x00", 120)}, false},
	{"execveat", []any{unix.AT_FDCWD, "/no such program", 0, 0, 0}, false},
	{"fork", nil, true},
	{"clone", []any{int(unix.SIGCHLD)}, true},
	{"clone3", []any{strings.Repeat("\x00", 64), 64}, true},
	{"ptrace", []any{unix.PTRACE_PEEKDATA, 1}, false},
	{"process_vm_readv", []any{1, 0, 0, 0, 0, 0}, false},
	{"pidfd_open", []any{1, 0}, true},
	{"unshare", []any{0}, true},
	{"mount", []any{"none", "/no such place", "tmpfs", 0, 0}, false},
	{"chroot", []any{"/no such place"}, false},
	{"bpf", []any{0, 0, 0}, false},
	{"perf_event_open", []any{"", 0, 0, -1, 0}, false},
	{"userfaultfd", []any{0}, false},
	{"keyctl", []any{0, 0}, false},
	{"init_module", []any{"", 0, ""}, false},
	{"mprotect", []any{0, 0, unix.PROT_EXEC}, true},
	{"mmap", []any{0, 4096, unix.PROT_READ | unix.PROT_WRITE | unix.PROT_EXEC, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, -1, 0}, true},
	{"prctl", []any{unix.PR_SET_DUMPABLE, 1}, true},
	{"seccomp", []any{unix.SECCOMP_GET_ACTION_AVAIL, 0, "\x00\x00\xff\x7f"}, true},
	{"execve", []any{"/bin/true", 0, 0}, true}, // the last, for where it succeeds
}

// here gives the calls that this architecture has, with their numbers.
func here(t *testing.T) (calls []rawCall, numbers []int) {
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range rawCalls {
		if n, known := info.SyscallNames[c.name]; known {
			calls, numbers = append(calls, c), append(numbers, n)
		}
	}
	return calls, numbers
}

// TestBreakout is a script with raw system calls, as after an escape from the engine, in the worker as it is deployed
// but for that one global.
func TestBreakout(t *testing.T) {
	p := newPool(t, func(c *Config) { c.WorkerPath = buildBreakout(t) })
	if p.Tier() != TierJailed {
		t.Fatalf("tier %s", p.Tier())
	}
	calls, numbers := here(t)
	got, err := p.Run(t.Context(), "t1", script(breakoutSource(calls, numbers)), &fakeHost{})
	if err != nil {
		t.Fatal(err)
	}
	var jailed [][2]int
	if err := json.Unmarshal(got.Value, &jailed); err != nil || len(jailed) != len(calls) {
		t.Fatalf("%s: %v", got.Value, err)
	}
	for i, c := range calls {
		if e := syscall.Errno(jailed[i][1]); jailed[i][0] != -1 || e != syscall.EPERM {
			t.Errorf("%s(%q) is not refused: %d, %v", c.name, c.args, jailed[i][0], e)
		}
	}
	if pid := ask(t, p, `return syscall(`+numberOf(t, "getpid")+`)`); pid != "[1,0]" {
		t.Errorf("getpid gives %s: the calls of this test reach no kernel, or another's namespace", pid)
	}

	// The control: a process without a jail makes the same calls.
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args[0] = "unjailed"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	free := strings.Fields(string(out))
	if len(free) != len(calls)-1 { // execve does not come back
		t.Fatalf("the control says %s", out)
	}
	for i, e := range free {
		if calls[i].free && e != "0" {
			t.Errorf("%s(%q) fails without the jail too, with %s: this test shows nothing", calls[i].name, calls[i].args, e)
		}
	}
}

// buildBreakout builds the worker with the one global more: engine/breakout.go.
var buildBreakout = func() func(*testing.T) string {
	build := sync.OnceValues(func() ([]byte, error) {
		dir, err := os.MkdirTemp("", "jsworker")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "jsworker")
		cmd := exec.Command("go", "build", "-trimpath", "-tags=breakout", "-o", path, "../../cmd/jsworker")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		return os.ReadFile(path)
	})
	return func(t *testing.T) string {
		t.Helper()
		program, err := build()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "jsworker")
		if err := os.WriteFile(path, program, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
}()

func breakoutSource(calls []rawCall, numbers []int) string {
	var b strings.Builder
	b.WriteString("return [\n")
	for i, c := range calls {
		args := must(json.Marshal(append([]any{numbers[i]}, c.args...)))
		fmt.Fprintf(&b, "syscall(...%s),\n", args)
	}
	b.WriteString("]")
	return b.String()
}

func ask(t *testing.T, p *Pool, source string) string {
	t.Helper()
	got, err := p.Run(t.Context(), "t1", script(source), &fakeHost{})
	if err != nil {
		t.Fatal(err)
	}
	return string(got.Value)
}

func numberOf(t *testing.T, name string) string {
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(info.SyscallNames[name])
}

// actUnjailed is the control's process: it prints the errno of each call and ends as another program.
func actUnjailed() {
	info, err := arch.GetInfo("")
	if err != nil {
		return
	}
	for _, c := range rawCalls {
		number, known := info.SyscallNames[c.name]
		if !known {
			continue
		}
		var args [6]uintptr
		var held [][]byte
		for i, a := range c.args {
			switch a := a.(type) {
			case string:
				held = append(held, append([]byte(a), 0))
				args[i] = uintptr(unsafe.Pointer(&held[len(held)-1][0]))
			case int:
				args[i] = uintptr(a)
			}
		}
		if c.name == "clone3" { // exit_signal, the fifth of its words
			held[0][32] = byte(unix.SIGCHLD)
		}
		result, _, e := syscall.RawSyscall6(uintptr(number), args[0], args[1], args[2], args[3], args[4], args[5])
		if result == 0 && e == 0 && (c.name == "fork" || c.name == "clone" || c.name == "clone3") {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0) // in the child
		}
		fmt.Println(int(e))
	}
}

// quietCalls are what a worker asks of the kernel from its script's first byte to its own end.
var quietCalls = []string{
	"read", "write", "close", "mmap", "munmap", "madvise", "mincore", "brk", "futex", "exit", "exit_group", "gettid", "getpid",
	"sched_yield", "set_robust_list", "rseq", "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack",
	"tgkill", "clock_gettime", "gettimeofday", "nanosleep", "clock_nanosleep", "epoll_ctl", "epoll_wait", "epoll_pwait",
	"getrusage", "getrandom", "clone",
}

// TestTrace has the kernel write down what workers ask of it while they run scripts.
func TestTrace(t *testing.T) {
	strace, err := exec.LookPath("strace")
	switch {
	case os.Getenv("CI") != "" && err != nil:
		t.Fatal(err)
	case err != nil:
		t.Skip("there is no strace")
	case os.Getuid() != 0:
		t.Skip("only root may trace a process that is not dumpable")
	}
	p := newPool(t)
	for name, source := range map[string]string{
		"everything": `const r = await Promise.all([tools.a.b({x: 1}), fetch('https://a.test/').catch(e => e.code)]);
			await new Promise(done => setTimeout(done, 5)); console.log(r, new Date().toString(), 'ä'.localeCompare('z'), /\p{L}+/u.exec('é'));
			const big = Array.from({length: 2e5}, (_, i) => ({i})); return [big.length, crypto.randomUUID(), structuredClone(r), new URL('https://a.test/b').host]`,
		"typed":             `const x: number = 1; enum E { A } async function* g() { yield x } for await (const y of g()) return y + E.A`,
		"22_source_map":     "return 1 //# sourceMappingURL=file:///dev/zero",
		"source map, typed": "const n: number = 1; return n\n//# sourceMappingURL=/etc/passwd",
		"24_require":        `require('/etc/passwd')`,
		"import":            `import fs from 'fs'; return fs.readFileSync('/etc/passwd')`,
		"dynamic import":    `return await import('/etc/passwd')`,
		"01_loop":           `for (;;) {}`,
		"14_backtracking":   `/^(?=a)(a+)+$/.test('a'.repeat(40)+'!')`,
		"08_array_buffer":   `new ArrayBuffer(4e9)`,
		"17_nested_json":    `JSON.parse('['.repeat(5e6))`,
		"time zones":        `return new Date(0).toLocaleString() + new Date('2020-01-01T00:00:00+05:00').toString()`,
	} {
		t.Run(name, func(t *testing.T) {
			lines := trace(t, p, strace, source)
			if len(lines) == 0 {
				t.Fatal("nothing was seen")
			}
			for _, line := range lines {
				if strings.Contains(line.text, "ioctl(2, TCGETS") || strings.Contains(line.text, "ioctl resumed") && strings.Contains(line.text, "EPERM") {
					continue // the compiler asks whether stderr is a terminal, and is refused
				}
				if !slices.Contains(quietCalls, line.name) || line.name == "clone" && !strings.Contains(line.text, "CLONE_THREAD") {
					t.Errorf("the worker asks for %s", line.text)
				}
			}
		})
	}
	// And a worker that does ask is seen.
	loud := newPool(t, func(c *Config) { c.WorkerPath = buildBreakout(t) })
	calls, numbers := here(t)
	seen := map[string]bool{}
	for _, line := range trace(t, loud, strace, breakoutSource(calls, numbers)) {
		seen[line.name] = true
	}
	for _, name := range []string{"open", "openat", "socket", "connect", "execve", "fork"} {
		if slices.ContainsFunc(calls, func(c rawCall) bool { return c.name == name }) && !seen[name] {
			t.Errorf("%s was made and not seen: this test shows nothing", name)
		}
	}
}

type traced struct{ name, text string }

var tracedCall = regexp.MustCompile(`^\d+ +(?:<\.\.\. )?([a-z0-9_]+)(?:\(| resumed>)`)

// trace runs a script in a ready worker and gives every system call of it.
func trace(t *testing.T, p *Pool, strace, source string) (calls []traced) {
	t.Helper()
	w, err := p.take(t.Context(), false, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard(w)
	out := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-qq", "-s", "64", "-o", out, "-p", fmt.Sprint(w.cmd.Process.Pid))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	waitUntil(t, func() bool {
		select {
		case err := <-ended:
			if os.Getenv("CI") == "" {
				t.Skipf("strace may not trace here: %v", err)
			}
			t.Fatalf("strace ended before it had begun: %v", err)
		default:
		}
		return isTraced(w.cmd.Process.Pid)
	})
	s := script(source)
	s.Limits = Limits{CPU: 500 * time.Millisecond, Heap: 64 << 20}
	_, err = newSession(p, w, s.Limits.AtMost(p.config.Limits), &fakeHost{}).run(t.Context(), s)
	if codeOf(err) == CodeFault {
		t.Errorf("%v: %s", err, w.stderr)
	}
	<-ended // it ends with the last thread
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		switch m := tracedCall.FindStringSubmatch(line); {
		case m != nil:
			calls = append(calls, traced{m[1], strings.TrimSpace(line)})
		case !strings.Contains(line, "+++ ") && !strings.Contains(line, "--- ") && !strings.Contains(line, "???"):
			t.Errorf("what is %q", line)
		}
	}
	return calls
}

// isTraced reports whether every thread has its tracer.
func isTraced(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil || strings.Contains(string(text), "TracerPid:\t0\n") {
			return false
		}
	}
	return len(tasks) > 0
}
