package cage

import (
	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
)

// refused is what no build, test or shell needs, and what kernels have been broken through: mounts and namespaces of
// one's own, the kernel's keys, modules and programs, other processes' memory, and ways around the file rules. Commands
// are customers' own, of any kind: so this is a list of what is refused, and not of what is allowed.
var refused = []string{
	"mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsmount", "fsconfig", "fspick", "mount_setattr", "swapon", "swapoff",
	"setns", "unshare",
	"keyctl", "add_key", "request_key",
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
	"process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd",
	"open_by_handle_at", "name_to_handle_at", "quotactl", "quotactl_fd", "acct", "syslog", "nfsservctl", "vhangup", "iopl", "ioperm",
	"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
}

func filter() error {
	info, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	var names []string
	for _, name := range refused {
		if _, known := info.SyscallNames[name]; known {
			names = append(names, name)
		}
	}
	return seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionAllow,
			Syscalls:      []seccomp.SyscallGroup{{Action: seccomp.ActionErrno, Names: names}},
		},
	})
}
