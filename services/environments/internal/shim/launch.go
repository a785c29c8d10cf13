package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
)

func (s *Shim) launch(self string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for _, fd := range pair {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 2*maxDatagram) // a smaller one refuses long command lines
	}
	mine, theirs := os.NewFile(uintptr(pair[0]), "launcher"), os.NewFile(uintptr(pair[1]), "shim")
	defer theirs.Close()
	rules, err := json.Marshal(s.cfg.Rules)
	if err != nil {
		return err
	}
	// The launcher is in a group beside those of commands. To start a command in its group it has to be let write to both,
	// and to the one that holds them.
	for _, g := range []cage.Group{s.whole(), s.launchers(), s.commands()} {
		if err := g.Make(s.cfg.UID, s.cfg.GID); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
	}
	s.whole().Limit(s.cfg.Rules.Most)
	cmd := exec.Command(self, "launch", string(rules))
	cmd.Env, cmd.Dir, cmd.ExtraFiles, cmd.Stderr = []string{}, "/", []*os.File{theirs}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if s.cfg.Cgroup != "" {
		dir, err := os.Open(s.launchers().Dir)
		if err != nil {
			return fmt.Errorf("control group: %w", err)
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if s.cfg.Rules.Own {
		cmd.SysProcAttr.Cloneflags |= cage.Namespaces
		cmd.SysProcAttr.AmbientCaps = cage.Rights
		if !s.cfg.Rules.Network {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
		}
	}
	if s.cfg.UID != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(s.cfg.UID), Gid: uint32(s.cfg.GID)}
	}
	if os.Geteuid() != 0 && cmd.SysProcAttr.Cloneflags != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		mine.Close()
		return problem.Wrap(err, problem.Unavailable, "the machine does not let commands have a cage of their own: %v", err)
	}
	s.socket, s.launcher = mine, cmd
	first, err := receive(int(mine.Fd()))
	if err != nil || !first.Ready || first.Fault != "" {
		mine.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return problem.New(problem.Unavailable, "commands cannot be held on this machine: %s", first.Fault)
	}
	s.isolation = first.Isolation
	s.isolation.Cgroup = s.cfg.Cgroup != ""
	s.listening.Go(s.listen)
	if os.Getpid() == 1 {
		s.adopt()
	}
	return nil
}

func receive(fd int) (w launched, err error) {
	buffer, control := make([]byte, maxDatagram), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(fd, buffer, control, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return w, err
		case n == 0:
			return w, io.EOF
		}
		for _, f := range received(control[:oobn]) {
			w.file = f // there is room for one
		}
		return w, json.Unmarshal(buffer[:n], &w)
	}
}

// listen hears the launcher until it is gone. What runs then has lost its parent, and is ended.
func (s *Shim) listen() {
	for {
		w, err := receive(int(s.socket.Fd()))
		if err != nil {
			break
		}
		s.mu.Lock()
		c, start := s.execs[w.ID], s.waiting[w.ID]
		s.mu.Unlock()
		switch {
		case w.Ended && c != nil:
			c.ended <- w
		case start != nil:
			start <- w
		case w.file != nil:
			w.file.Close() // whoever asked does not wait any more
		}
	}
	defer close(s.lost)
	s.endWays()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for _, c := range s.execs {
		if c.Running() {
			select {
			case c.ended <- launched{Ended: true, Code: -1, Fault: "the launcher ended"}:
			default:
			}
		}
	}
}
