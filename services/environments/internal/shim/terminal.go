package shim

import (
	"errors"
	"os"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// terminal makes one, and gives this side's ends and the three that a command has.
func (s *Shim) terminal(size Size) (ours pipes, theirs []*os.File, err error) {
	here, there, err := pty.Open()
	if err != nil {
		return ours, nil, err
	}
	defer here.Close()
	theirs = []*os.File{there}
	if s.cfg.UID != 0 {
		_ = there.Chown(s.cfg.UID, s.cfg.GID) // else the command has it open, and cannot open it again by its name
	}
	for range 2 {
		fd, err := unix.FcntlInt(there.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return ours, theirs, err
		}
		theirs = append(theirs, os.NewFile(uintptr(fd), there.Name()))
	}
	// The end of input closes nothing that output comes from: each is a file of its own. They do not block, so that reading one
	// ends when it is closed, and writing has deadlines.
	for _, to := range []**os.File{&ours.in, &ours.out} {
		fd, err := unix.FcntlInt(here.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return ours, theirs, err
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return ours, theirs, errors.Join(err, unix.Close(fd))
		}
		*to = os.NewFile(uintptr(fd), here.Name())
	}
	ours.tty = ours.out
	return ours, theirs, resize(ours.tty, size)
}

func resize(tty *os.File, to Size) error {
	raw, err := tty.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: max(to.Rows, 1), Col: max(to.Cols, 1)})
	})
	return errors.Join(err, set)
}

// Feed gives a command a piece of what it is fed: input, its terminal's size, a signal. What it was fed before it is not fed again,
// and the answer says up to where it has it: so whoever lost an answer, or is another's successor, asks anew. It waits for a
// command that does not read for a moment, and gives less then. Problems: conflict when the command has ended or takes no input.
func (s *Shim) Feed(id string, piece Fed) (Exec, error) {
	s.mu.Lock()
	c, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return Exec{}, err
	}
	c.feeding.Lock()
	defer c.feeding.Unlock()
	is := s.now(c)
	skip := is.Fed - piece.From
	switch {
	case !is.Running() || c.stdin == nil:
		return is, problem.New(problem.Conflict, "the command has ended")
	case skip < 0:
		return is, problem.New(problem.Conflict, "what the command is fed is not whole: %d bytes are missing", -skip)
	}
	data := piece.Data[min(skip, int64(len(piece.Data))):]
	n := len(data)
	switch {
	case n == 0:
	case piece.Size != nil:
		if c.tty != nil {
			err = resize(c.tty, *piece.Size)
		}
	case piece.Signal != "":
		if sig := unix.SignalNum("SIG" + piece.Signal); sig != 0 {
			_, err = s.Signal(id, sig)
		}
	default:
		if err = c.stdin.SetWriteDeadline(time.Now().Add(writeWithin)); err == nil {
			n, err = c.stdin.Write(data)
		}
	}
	s.mu.Lock()
	c.Fed += int64(n)
	s.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return s.now(c), nil
	}
	if err == nil && piece.EOF && c.tty == nil {
		if err = c.stdin.Close(); errors.Is(err, os.ErrClosed) {
			err = nil
		}
	}
	if err != nil {
		return s.now(c), problem.Wrap(err, problem.Conflict, "the command's input is closed")
	}
	return s.now(c), nil
}
