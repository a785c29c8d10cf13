package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// nobody is the user that a worker is, inside its user namespace and, if we may choose, outside.
const nobody = 65534

const (
	maxHello     = 16 << 10
	maxLastWords = 4 << 10
	// hardMargin is the processor time between a script's limit, which the worker keeps, and the kernel's.
	hardMargin = 3 * time.Second
	// runtimeData is the writable memory of a worker without a script.
	runtimeData = 128 << 20
)

// worker is one process, from its start until it is reaped.
type worker struct {
	cmd    *exec.Cmd
	socket *os.File
	conn   *wire.Conn
	stderr *lastWords
	report Report

	// Of whoever has the worker: it is in one pair of hands at a time.
	scripts int           // that it was given
	used    time.Duration // of processor time, before the script that it has
	gaveWay bool

	exited chan struct{} // closed once the process is reaped
	end    *os.ProcessState
}

// startWorker starts a process. It must run on the OS thread that outlives every worker: the kernel ties the parent
// death signal to the thread.
func startWorker(image *os.File, limits Limits, weak bool) (*worker, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(ends[1]), "worker")
	defer theirs.Close()
	if err := unix.SetNonblock(ends[0], true); err != nil { // so that closing it ends a read
		unix.Close(ends[0])
		return nil, err
	}
	w := &worker{socket: os.NewFile(uintptr(ends[0]), "worker"), stderr: &lastWords{}, exited: make(chan struct{})}
	w.conn = wire.NewConn(w.socket)

	w.cmd = &exec.Cmd{
		Path: "/proc/self/fd/4",
		Args: []string{
			"jsworker",
			fmt.Sprintf("-data=%d", runtimeData+limits.Heap),
			fmt.Sprintf("-cpu=%d", hardCPU(limits)/time.Second),
		},
		// One script is one thread's work; more threads would only collect garbage beside it.
		Env:         []string{"GOMAXPROCS=1"},
		Dir:         "/",
		ExtraFiles:  []*os.File{theirs, image}, // descriptors 3 and 4
		Stderr:      w.stderr,
		SysProcAttr: attributes(weak),
		WaitDelay:   time.Second,
	}
	if err := w.cmd.Start(); err != nil {
		w.socket.Close()
		return nil, err
	}
	go func() {
		_ = w.cmd.Wait() // how it ended is in the state
		w.end = w.cmd.ProcessState
		close(w.exited)
	}()
	return w, nil
}

// hardCPU is the processor time after which the kernel ends a worker, in whole seconds.
func hardCPU(l Limits) time.Duration {
	return (l.CPU + hardMargin + time.Second - 1).Truncate(time.Second)
}

// attributes puts the worker into namespaces of its own and binds its life to ours.
func attributes(weak bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if weak {
		return a
	}
	a.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		// Root can give the worker an identity that owns nothing outside either.
		uid, gid = nobody, nobody
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: uid, Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: gid, Size: 1}}
	return a
}

// awaitHello reads the first word. It ends when the process does.
func (w *worker) awaitHello() error {
	_, body, err := w.conn.Receive(func(k wire.Kind) int {
		if k == wire.KindHello {
			return maxHello
		}
		return 0
	})
	var hello wire.Hello
	if err == nil {
		err = wire.Decode(body, &hello)
	}
	if err == nil && hello.Version != wire.Version {
		err = fmt.Errorf("the worker speaks version %d, not %d", hello.Version, wire.Version)
	}
	if err != nil {
		w.kill()
		<-w.exited
		return fmt.Errorf("no hello: %w (%s; stderr: %q)", err, w.end, w.stderr)
	}
	w.report = report(hello.Isolation)
	return nil
}

// kill ends the process, and with it everything in its PID namespace. It may be called again.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill() // it fails only for a process that has ended
	w.socket.Close()
}

// lastWords keeps what a process says on stderr, for operators.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the beginning: a crash says its reason first.
func (l *lastWords) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p[:min(len(p), maxLastWords-len(l.text))]...)
	return len(p), nil
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
