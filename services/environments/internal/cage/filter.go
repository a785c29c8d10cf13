package cage

import (
	"fmt"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
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
	if err := onlyNative(uint32(info.ID)); err != nil {
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

// onlyNative refuses the system calls of other architectures, such as those of 32-bit programs: a list of names is of one
// architecture's numbers, and would let all of another's through.
func onlyNative(id uint32) error {
	const archOffset = 4 // in seccomp_data
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: archOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: id},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("filter of architectures: %w", errno)
	}
	return nil
}
