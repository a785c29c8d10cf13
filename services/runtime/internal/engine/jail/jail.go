package jail

import (
	"errors"
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/services/runtime/internal/sandbox/wire"
)

// Bounds are the kernel's own limits on the process.
type Bounds struct {
	// Data bounds the writable memory in bytes (RLIMIT_DATA). RLIMIT_AS would be the wrong knob: the Go runtime
	// reserves more than a gigabyte of address space that it never touches.
	Data uint64
	// CPU is processor time in seconds, after which the kernel kills (RLIMIT_CPU).
	CPU uint64
}

// Close applies every layer and says what holds. It never fails: the parent decides whether what holds is enough.
func Close(b Bounds) wire.Isolation {
	is := wire.Isolation{Namespaces: namespaces()}
	step := func(what string, err error) bool {
		if err != nil {
			is.Faults = append(is.Faults, fmt.Sprintf("%s: %v", what, err))
		}
		return err == nil
	}
	is.EmptyEnv = empty(os.Environ())
	is.Rlimits = step("rlimits", restrictResources(b))
	is.NoNewPrivs = step("no_new_privs", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	// Nobody of the same user may read this process's memory. It also keeps a core from being written.
	step("dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))

	if abi, err := landlocksys.LandlockGetABIVersion(); step("landlock", err) {
		if step("landlock", landlock.V7.BestEffort().Restrict()) {
			is.Landlock = min(abi, 7)
		}
	}
	is.Seccomp = step("seccomp", loadFilter())

	is.FilesDenied = refused(tryFile())
	is.SocketDenied = refused(trySocket())
	is.ExecDenied = refused(tryExec())
	return is
}

// empty allows the one variable that the parent sets for the Go runtime.
func empty(env []string) bool {
	for _, e := range env {
		if e != "GOMAXPROCS=1" {
			return false
		}
	}
	return true
}

func namespaces() map[string]string {
	ids := map[string]string{}
	for _, kind := range []string{"user", "net", "mnt", "pid", "ipc", "uts"} {
		if id, err := os.Readlink("/proc/self/ns/" + kind); err == nil {
			ids[kind] = id
		}
	}
	return ids
}

func restrictResources(b Bounds) error {
	for _, l := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_DATA, b.Data},
		{unix.RLIMIT_CPU, b.CPU},
		{unix.RLIMIT_NOFILE, 16},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_MSGQUEUE, 0},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return fmt.Errorf("resource %d: %w", l.resource, err)
		}
	}
	return nil
}

// refused reports whether err is the kernel's refusal. Success and any other failure prove nothing.
func refused(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

func tryFile() error {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func trySocket() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// tryExec names a program that cannot exist, so that it returns even where exec is allowed.
func tryExec() error { return unix.Exec("/\x01", []string{"\x01"}, nil) }
