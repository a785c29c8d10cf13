package jail

import (
	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// allowed is what the Go runtime calls while it computes, and reading and writing open descriptors. Nothing here
// makes a descriptor to the outside, names a path or touches another process. Names that an architecture does not
// have are left out there.
var allowed = []string{
	// the one socket, and stderr for a crash
	"read", "write", "close",
	// memory
	"munmap", "madvise", "mincore", "brk",
	// threads
	"futex", "exit", "exit_group", "gettid", "getpid", "sched_yield", "sched_getaffinity", "set_robust_list", "rseq",
	"arch_prctl", "restart_syscall",
	// signals: the runtime preempts goroutines with them
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "tgkill",
	// time
	"clock_gettime", "gettimeofday", "nanosleep", "clock_nanosleep",
	// the network poller, which timers wake too
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "eventfd2",
	// what the watcher reads, and seeds for maps
	"getrusage", "getrandom",
}

// loadFilter refuses every other call with EPERM on all threads. The runtime copes with an error where being killed
// would lose the reason.
func loadFilter() error {
	info, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	var names []string
	for _, name := range allowed {
		if _, known := info.SyscallNames[name]; known {
			names = append(names, name)
		}
	}
	return seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno, // EPERM
			Syscalls: []seccomp.SyscallGroup{{
				Action: seccomp.ActionAllow,
				Names:  names,
				NamesWithCondtions: []seccomp.NameWithConditions{
					// Threads, never processes: a clone has to share this process's memory and thread group.
					{Name: "clone", Conditions: seccomp.ArgumentConditions{
						{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_THREAD},
						{Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_VM},
					}},
					// Memory, never code, and never a view on a descriptor.
					{Name: "mmap", Conditions: seccomp.ArgumentConditions{
						{Argument: 2, Operation: seccomp.BitsNotSet, Value: unix.PROT_EXEC},
						{Argument: 3, Operation: seccomp.BitsSet, Value: unix.MAP_ANONYMOUS},
					}},
				},
			}},
		},
	})
}
