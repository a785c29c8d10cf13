package shim

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// Get says how a command stands; it waits until it ends, or ctx does.
func (s *Shim) Get(ctx context.Context, id string) (Exec, error) {
	s.mu.Lock()
	c, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return Exec{}, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return s.now(c), nil
}

// now is how a command stands, with what it printed so far.
func (s *Shim) now(c *command) Exec {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := c.Exec
	if e.Running() {
		t := c.spool.Totals()
		e.Bytes, e.Lost = t.Size, t.Lost
	}
	return e
}

// Read gives output from an offset on. When there is none yet, and the command runs, it waits for some until ctx ends.
func (s *Shim) Read(ctx context.Context, id string, after int64, limit int) (Output, error) {
	s.mu.Lock()
	c, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return Output{}, err
	}
	for {
		changed, size, closed := c.spool.Changed()
		if size > after || closed || ctx.Err() != nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	pieces, err := c.spool.Read(after, limit)
	if err != nil {
		return Output{}, problem.Wrap(err, problem.Unavailable, "the output cannot be read")
	}
	out := Output{Next: max(after, 0), Pieces: []Piece{}, Exec: s.now(c)}
	for _, p := range pieces {
		out.Pieces = append(out.Pieces, Piece{Stream: int(p.Stream), Data: p.Data, Lost: p.Lost})
		out.Next = p.Next()
	}
	return out, nil
}

// Write gives a running command input.
func (s *Shim) Write(id string, data []byte, eof bool) (Exec, error) {
	s.mu.Lock()
	c, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return Exec{}, err
	}
	if !s.now(c).Running() || c.stdin == nil {
		return s.now(c), problem.New(problem.Conflict, "the command has ended")
	}
	if len(data) > 0 {
		// A command that does not read must not hold its caller for ever.
		if err := c.stdin.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
			return s.now(c), problem.Wrap(err, problem.Conflict, "the command's input is closed")
		}
		if n, err := c.stdin.Write(data); err != nil {
			return s.now(c), problem.Wrap(err, problem.Conflict, "the command took %d of %d bytes of input", n, len(data))
		}
	}
	if eof {
		if err := c.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return s.now(c), problem.Wrap(err, problem.Conflict, "the command's input is closed")
		}
	}
	return s.now(c), nil
}

const writeWithin = 2 * time.Second

// Signal sends a signal to a command and everything that it began.
func (s *Shim) Signal(id string, sig unix.Signal) (Exec, error) {
	s.mu.Lock()
	c, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return Exec{}, err
	}
	if s.now(c).Running() {
		s.mu.Lock()
		group := c.group
		s.mu.Unlock()
		group.Signal(sig)
	}
	return s.now(c), nil
}

// List gives the commands of this life, the newest first.
func (s *Shim) List() []Exec {
	s.mu.Lock()
	list := make([]*command, 0, len(s.execs))
	for _, c := range s.execs {
		list = append(list, c)
	}
	s.mu.Unlock()
	out := make([]Exec, 0, len(list))
	for _, c := range list {
		out = append(out, s.now(c))
	}
	slices.SortFunc(out, func(a, b Exec) int { return b.Began.Compare(a.Began) })
	return out
}
