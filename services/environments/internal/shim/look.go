package shim

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/execwarden/execwarden/libs/keyfile"
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
	if p.err != nil {
		pumping.Go(func() { pump(c.spool, spool.Stderr, p.err) })
	}
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
	if p.err != nil {
		p.err.Close()
	}
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
