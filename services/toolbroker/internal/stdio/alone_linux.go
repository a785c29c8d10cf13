package stdio

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// alone gives the program a process group of its own, and ties its life to the broker's: it is killed when the broker is,
// however that ends.
func alone(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return nil
}

// settled waits until the program has ended, and leaves its number taken.
func settled(cmd *exec.Cmd) {
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// killGroup ends the program and everything of its group. A child that made a group of its own is not in it.
func killGroup(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) } // there may be none any more
