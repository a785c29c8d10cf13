package shim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/cage"
	"github.com/execwarden/execwarden/services/environments/internal/spool"
)

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
	case spec.TTY != nil && !spec.KeepIn:
		return problem.New(problem.Invalid, "a terminal's input stays open")
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
	c.stdin, c.tty = pipes.in, pipes.tty
	s.log.Debug("begun", "exec", c.ID, "pid", pid)
	s.listening.Go(func() { s.look(c, spec, pipes) })
}

// pipes are this side's ends. At a terminal out is its other side, in the same once more, and there is no err.
type pipes struct{ in, out, err, tty *os.File }

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
	if spec.TTY != nil {
		ours, theirs, err = s.terminal(*spec.TTY)
	} else {
		ours.in, ours.out, ours.err = pipe(false), pipe(true), pipe(true)
	}
	if err != nil {
		return 0, ours, err
	}
	what := launch{ID: spec.ID, Argv: spec.Argv, Cwd: spec.Cwd, Env: append(slices.Clone(spec.Env), cage.Mark+"="+spec.ID), TTY: spec.TTY != nil, Control: spec.Control}
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
