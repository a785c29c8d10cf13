package shim

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sockets gives the inodes of the machine's TCP sockets that fit, as the kernel lists them (proc_net_tcp): addresses are
// hexadecimal, the port behind the colon.
func sockets(fits func(local, remote, state string) bool) map[string]bool {
	found := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // a kernel without IPv6
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) > 9 && f[9] != "0" && fits(f[1], f[2], f[3]) {
				found["socket:["+f[9]+"]"] = true
			}
		}
	}
	return found
}

// ours says whether a process of this attachment has one of some sockets open.
func (s *Shim) ours(inodes map[string]bool) bool {
	if len(inodes) == 0 {
		return false
	}
	all := s.commands()
	all.Root = s.launcher.Process.Pid
	for _, pid := range all.Members() {
		open, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*") // the pattern is right
		for _, fd := range open {
			if target, err := os.Readlink(fd); err == nil && inodes[target] {
				return true
			}
		}
	}
	return false
}

// listens says whether a command of this attachment listens on a port.
func (s *Shim) listens(port int) bool {
	const listening = "0A"
	return s.ours(sockets(func(local, _, state string) bool {
		return state == listening && strings.HasSuffix(local, fmt.Sprintf(":%04X", port))
	}))
}

// connects says whether it is a command of this attachment that is at the other end of a connection.
func (s *Shim) connects(conn net.Conn) bool {
	theirs, ok := conn.RemoteAddr().(*net.TCPAddr)
	mine, okMine := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !okMine {
		return false
	}
	return s.ours(sockets(func(local, remote, _ string) bool {
		return strings.HasSuffix(local, fmt.Sprintf(":%04X", theirs.Port)) && strings.HasSuffix(remote, fmt.Sprintf(":%04X", mine.Port))
	}))
}
