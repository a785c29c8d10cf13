package shim

import (
	"context"
	"io"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

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
	s.endWays()
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
