package shim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/spool"
)

// The files of a command: its receipt before it begins, and its exit record.
const (
	receiptFile = "receipt.json"
	exitFile    = "exit.json"
)

func (s *Shim) dir(id string) string { return filepath.Join(s.cfg.Dir, "execs", id) }

// record writes how a command stands, whole and durable.
func (c *command) record(file string) error {
	raw, err := json.Marshal(c.Exec)
	if err != nil {
		return err
	}
	return keyfile.Write(filepath.Join(c.dir, file), string(raw))
}

// look pumps a command's output, ends it when its time is over, and records its end.
func (s *Shim) look(c *command, spec Spec, p pipes) {
	var pumping sync.WaitGroup
	drained := make(chan struct{})
	pumping.Go(func() { pump(c.spool, spool.Stdout, p.out) })
	pumping.Go(func() { pump(c.spool, spool.Stderr, p.err) })
	go func() {
		pumping.Wait()
		close(drained)
	}()
	s.listening.Go(func() { feed(c, spec, p.in) })

	var over <-chan time.Time
	if spec.Timeout > 0 {
		timer := time.NewTimer(spec.Timeout)
		defer timer.Stop()
		over = timer.C
	}
	var end launched
	survivors := 0
	select {
	case end = <-c.ended:
	case <-over:
		s.mu.Lock()
		if c.reason == "" {
			c.reason = TimedOut
		}
		s.mu.Unlock()
		_, survivors = c.group.End(context.Background(), endGrace)
		end = <-c.ended // it was killed
	}
	// What it left behind may hold its output open for ever: it is given a moment, and then ended with everything else.
	select {
	case <-drained:
	case <-time.After(drainWithin):
	}
	if _, left := c.group.End(context.Background(), 0); left > survivors {
		survivors = left
	}
	p.out.Close()
	p.err.Close()
	<-drained

	s.mu.Lock()
	defer s.mu.Unlock()
	c.Ended, c.Code, c.Signal, c.Survivors, c.Message = time.Now().UTC(), end.Code, end.Signal, survivors, end.Fault
	if c.Reason = c.reason; c.Reason == "" {
		c.Reason = Exited
	}
	s.finish(c)
}

// finish records an end, and tells whoever waits. It is called with the lock held.
func (s *Shim) finish(c *command) {
	if err := c.spool.Close(); err != nil {
		s.log.Error("output not kept", "exec", c.ID, "err", err)
	}
	t := c.spool.Totals()
	c.Bytes, c.Lost, c.SHA256 = t.Size, t.Lost, t.SHA256
	// A crash before this is written leaves a command whose end is not known; after it, the end is known for good.
	if err := c.record(exitFile); err != nil {
		s.log.Error("exit record not written", "exec", c.ID, "err", err)
	}
	c.group.Remove()
	s.dropOldOutput()
	close(c.done)
	close(s.changed)
	s.changed = make(chan struct{})
}

func pump(to *spool.Spool, stream spool.Stream, from *os.File) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			to.Write(stream, buffer[:n])
		}
		if err != nil {
			return // its end, or ours
		}
	}
}

func feed(c *command, spec Spec, to *os.File) {
	if len(spec.Stdin) > 0 {
		_, _ = to.Write(spec.Stdin) // a command need not read it
	}
	if !spec.KeepIn {
		to.Close()
		return
	}
	<-c.done
	to.Close()
}

// find gives a command of this life, or the record of one of an earlier life. It is called with the lock held.
func (s *Shim) find(id string) (*command, error) {
	if c, ok := s.execs[id]; ok {
		return c, nil
	}
	if !token(id) {
		return nil, problem.New(problem.Invalid, "that is no command's id")
	}
	dir := s.dir(id)
	c := &command{dir: dir, done: make(chan struct{})}
	close(c.done)
	raw, err := os.ReadFile(filepath.Join(dir, exitFile))
	ended := err == nil
	if !ended {
		raw, err = os.ReadFile(filepath.Join(dir, receiptFile))
	}
	if errors.Is(err, os.ErrNotExist) {
		if _, statErr := os.Stat(dir); statErr == nil {
			_ = os.RemoveAll(dir) // its receipt was not whole, so it was not begun
		}
		return nil, problem.New(problem.NotFound, "there is no command %s", id)
	}
	if err == nil {
		err = json.Unmarshal(raw, &c.Exec)
	}
	if err == nil {
		c.spool, err = spool.Open(dir)
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the record of command %s cannot be read", id)
	}
	if !ended {
		t := c.spool.Totals()
		c.Ended, c.Reason, c.Code, c.Bytes, c.Lost = time.Now().UTC(), Lost, -1, t.Size, t.Lost
		c.Message = "the machine, or what looks after its commands, ended before this command did"
		if err := c.record(exitFile); err != nil {
			return nil, diskFault(err)
		}
	}
	s.execs[id] = c
	return c, nil
}

// forgetOldest makes room for another command. It is called with the lock held.
func (s *Shim) forgetOldest() bool {
	var oldest *command
	for _, c := range s.execs {
		if !c.Running() && (oldest == nil || c.Ended.Before(oldest.Ended)) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.execs, oldest.ID) // its record stays on the disk
	return true
}

// dropOldOutput bounds what the output of ended commands takes of the disk. Their records stay. It is called with the lock
// held.
func (s *Shim) dropOldOutput() {
	var ended []*command
	for _, c := range s.execs {
		if !c.Running() {
			ended = append(ended, c)
		}
	}
	slices.SortFunc(ended, func(a, b *command) int { return b.Ended.Compare(a.Ended) })
	kept := int64(0)
	for _, c := range ended {
		if kept += c.Bytes - c.Lost; kept > keptOutput || time.Since(c.Ended) > keepFor {
			c.spool.Drop()
		}
	}
}

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

// Stop ends a command and everything that it began. reason is in its record.
func (s *Shim) Stop(ctx context.Context, id, reason string, grace time.Duration) (Exec, error) {
	s.mu.Lock()
	c, err := s.find(id)
	if err == nil && c.Running() && c.reason == "" {
		c.reason = reason
	}
	s.mu.Unlock()
	if err != nil {
		return Exec{}, err
	}
	if s.now(c).Running() {
		s.endOf(ctx, c, grace)
	}
	return s.now(c), nil
}

// endAgain is how soon what was asked to end is looked for again.
const endAgain = 20 * time.Millisecond

// endOf ends what a command began, and waits for its record. It looks again and again: a command that the launcher was just
// told of has no process yet.
func (s *Shim) endOf(ctx context.Context, c *command, grace time.Duration) (killed, left int) {
	for {
		s.mu.Lock()
		group := c.group
		s.mu.Unlock()
		ended := 0
		ended, left = group.End(ctx, grace)
		killed += ended
		if left > 0 {
			return killed, left // nothing ends what the kernel does not
		}
		select {
		case <-c.done:
			return killed, left
		case <-ctx.Done():
			return killed, left
		case <-time.After(endAgain):
		}
	}
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

// End ends the attachment: nothing begins any more, and everything that runs is ended. The launcher ends last.
func (s *Shim) End(ctx context.Context, grace time.Duration, reason string) Ended {
	s.mu.Lock()
	s.ending = true
	var running []*command
	for _, c := range s.execs {
		if c.Running() {
			running = append(running, c)
			if c.reason == "" {
				c.reason = reason
			}
		}
	}
	s.mu.Unlock()
	var mu sync.Mutex
	var total Ended
	var ends sync.WaitGroup
	for _, c := range running {
		ends.Go(func() {
			killed, left := s.endOf(ctx, c, grace)
			mu.Lock()
			defer mu.Unlock()
			total.Killed, total.Survivors = total.Killed+killed, total.Survivors+left
		})
	}
	ends.Wait()
	// What is left of commands that ended before: whatever left its group, or came into none.
	all := s.commands()
	all.Root = s.launcher.Process.Pid
	killed, left := all.End(ctx, 0)
	total.Killed += killed
	total.Survivors += left
	return total
}

// Close ends the launcher, and with it the shim. End comes before.
func (s *Shim) Close() error {
	_ = unix.Shutdown(int(s.socket.Fd()), unix.SHUT_RDWR) // one that is gone needs no word
	_ = s.launcher.Process.Kill()
	_ = s.launcher.Wait() // it was killed
	if s.orphans != nil {
		signal.Stop(s.orphans)
		close(s.orphans)
	}
	s.listening.Wait()
	s.whole().Remove()
	return s.socket.Close()
}

var _ io.Closer = (*Shim)(nil)
