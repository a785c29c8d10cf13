package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
	"github.com/execwarden/execwarden/services/environments/internal/spool"
)

// Shim keeps the commands of one attachment.
type Shim struct {
	cfg       Config
	log       *slog.Logger
	isolation environment.Isolation
	socket    *os.File // to the launcher
	launcher  *exec.Cmd
	listening sync.WaitGroup
	orphans   chan os.Signal // as process 1; nil otherwise
	lost      chan struct{}  // closed when the launcher is gone

	mu      sync.Mutex
	execs   map[string]*command
	waiting map[string]chan launched // for a start
	ending  bool
	changed chan struct{} // closed and replaced when a command ends
}

// command is one that runs, or ran in this life of the shim.
type command struct {
	Exec
	dir    string
	spool  *spool.Spool
	stdin  *os.File
	group  cage.Group
	ended  chan launched // the leader's end
	reason string        // why it is being ended, if it is
	done   chan struct{} // everything of it is over and recorded
}

// Start begins a shim: its launcher closes its cage first. self is the program whose "launch" is Launch.
func Start(cfg Config, self string, log *slog.Logger) (*Shim, error) {
	s := &Shim{cfg: cfg, log: log, execs: map[string]*command{}, waiting: map[string]chan launched{}, changed: make(chan struct{}), lost: make(chan struct{})}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "execs"), 0o700); err != nil {
		return nil, err
	}
	if err := s.launch(self); err != nil {
		return nil, err
	}
	return s, nil
}

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
	buffer := make([]byte, maxDatagram)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return w, err
		case n == 0:
			return w, io.EOF
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
		}
	}
	defer close(s.lost)
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

// group is everything that a command began.
func (s *Shim) group(id string) cage.Group {
	g := s.commands()
	g.Mark, g.Root = id, s.launcher.Process.Pid
	if s.cfg.Rules.Container != nil { // the shim is root with few of root's rights
		g.User = [2]int{s.cfg.UID, s.cfg.GID}
	}
	if g.Dir != "" {
		g.Dir = filepath.Join(g.Dir, id)
	}
	return g
}

// whole is the attachment's group, launchers the one of its launcher, and commands the one that commands have theirs in.
func (s *Shim) whole() cage.Group { return cage.Group{Dir: s.cfg.Cgroup} }

func (s *Shim) launchers() cage.Group { return s.below("launcher") }

func (s *Shim) commands() cage.Group { return s.below("commands") }

func (s *Shim) below(name string) cage.Group {
	if s.cfg.Cgroup == "" {
		return cage.Group{}
	}
	return cage.Group{Dir: filepath.Join(s.cfg.Cgroup, name)}
}

// Begin starts a command, once. Asked again for the same it answers how that stands. Problems: conflict for another command
// of the same id, busy when as many run as may.
func (s *Shim) Begin(spec Spec) (Exec, error) {
	if err := spec.check(); err != nil {
		return Exec{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if there, err := s.find(spec.ID); err == nil {
		if there.Digest != spec.Digest {
			return Exec{}, problem.New(problem.Conflict, "another command was begun under this id")
		}
		return there.Exec, nil
	} else if problem.CodeOf(err) != problem.NotFound {
		return Exec{}, err
	}
	running := 0
	for _, c := range s.execs {
		if c.Running() {
			running++
		}
	}
	switch {
	case s.ending:
		return Exec{}, problem.New(problem.Denied, "the attachment is ending")
	case running >= s.cfg.Execs:
		return Exec{}, problem.New(problem.Busy, "%d commands run, which is the most that the machine allows at once", running)
	case len(s.execs) >= maxExecs && !s.forgetOldest():
		return Exec{}, problem.New(problem.Busy, "too many commands of this attachment are remembered")
	}
	c := &command{Exec: Exec{ID: spec.ID, Digest: spec.Digest, Argv: spec.Argv, Began: time.Now().UTC(), Isolation: s.isolation},
		dir: s.dir(spec.ID), group: s.group(spec.ID), ended: make(chan launched, 1), done: make(chan struct{})}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return Exec{}, diskFault(err)
	}
	c.spool = spool.Create(c.dir, SpoolLimit)
	if err := c.record(receiptFile); err != nil {
		_ = os.RemoveAll(c.dir) // nothing was begun
		return Exec{}, diskFault(err)
	}
	// The receipt is on the disk. A crash from here on leaves a command that may have begun: whoever asks is told that it is
	// not known, and it is never begun again.
	s.execs[spec.ID] = c
	s.spawn(c, spec)
	return c.Exec, nil
}

func diskFault(err error) error {
	return problem.Wrap(err, problem.Unavailable, "the command's receipt cannot be written: %v", err)
}

func (spec Spec) check() error {
	total := len(spec.Cwd)
	for _, text := range slices.Concat(spec.Argv, spec.Env) {
		if strings.ContainsRune(text, 0) {
			return problem.New(problem.Invalid, "a command's words hold no zero byte")
		}
		total += len(text) + 8
	}
	switch {
	case !token(spec.ID) || spec.Digest == "" || len(spec.Argv) == 0 || !filepath.IsAbs(spec.Cwd):
		return problem.New(problem.Invalid, "the command is not whole")
	case total > maxDatagram*3/4:
		return problem.New(problem.TooLarge, "the command line and environment are over %d bytes; write them to a file", maxDatagram*3/4)
	}
	return nil
}

func token(text string) bool {
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return false
		}
	}
	return text != "" && len(text) <= 80
}

// spawn has the launcher start a command, and looks after it in a goroutine of its own. It is called with the lock held.
func (s *Shim) spawn(c *command, spec Spec) {
	pid, pipes, err := s.tell(c, spec)
	if err != nil {
		c.Ended, c.Reason, c.Code, c.Message = time.Now().UTC(), NotBegun, -1, err.Error()
		if problem.CodeOf(err) == problem.Denied {
			c.Reason, c.Message = Denied, problem.DetailOf(err).Message
		}
		s.finish(c)
		return
	}
	c.group.Root = s.launcher.Process.Pid
	if !s.cfg.Rules.Own { // else the number is of the launcher's own namespace
		c.group.Lead(pid)
	}
	c.stdin = pipes.in
	s.log.Debug("begun", "exec", c.ID, "pid", pid)
	s.listening.Go(func() { s.look(c, spec, pipes) })
}

type pipes struct{ in, out, err *os.File }

// tell passes the command and its ends of the pipes to the launcher, and waits for its word that it runs.
func (s *Shim) tell(c *command, spec Spec) (pid int, ours pipes, err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range []*os.File{ours.in, ours.out, ours.err} {
				if f != nil {
					f.Close()
				}
			}
		}
	}()
	pipe := func(read bool) *os.File {
		var r, w *os.File
		if err != nil {
			return nil
		}
		if r, w, err = os.Pipe(); err != nil {
			return nil
		}
		if read {
			theirs = append(theirs, w)
			return r
		}
		theirs = append(theirs, r)
		return w
	}
	ours.in, ours.out, ours.err = pipe(false), pipe(true), pipe(true)
	if err != nil {
		return 0, ours, err
	}
	what := launch{ID: spec.ID, Argv: spec.Argv, Cwd: spec.Cwd, Env: append(slices.Clone(spec.Env), cage.Mark+"="+spec.ID)}
	if c.group.Dir != "" {
		if err = c.group.Make(s.cfg.UID, s.cfg.GID); err != nil {
			return 0, ours, err
		}
		dir, err := os.Open(c.group.Dir)
		if err != nil {
			return 0, ours, err
		}
		theirs, what.Cgroup = append(theirs, dir), true
	}
	raw, err := json.Marshal(what)
	if err != nil {
		return 0, ours, err
	}
	var fds []int
	for _, f := range theirs {
		fds = append(fds, int(f.Fd()))
	}
	heard := make(chan launched, 1)
	s.waiting[spec.ID] = heard
	defer delete(s.waiting, spec.ID)
	if err = unix.Sendmsg(int(s.socket.Fd()), raw, unix.UnixRights(fds...), nil, 0); err != nil {
		return 0, ours, err
	}
	// The lock is let go of for the wait: what the launcher says is handed on under it.
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case w := <-heard:
		switch {
		case w.Denied:
			return 0, ours, problem.New(problem.Denied, "%s", w.Fault)
		case w.Fault != "":
			return 0, ours, errors.New(w.Fault)
		}
		return w.PID, ours, nil
	case w := <-c.ended:
		select {
		case first := <-heard: // it ran, and has ended already
			c.ended <- w
			return first.PID, ours, nil
		default:
		}
		return 0, ours, errors.New(w.Fault)
	}
}
