package postgres

import (
	"context"
	"time"
)

// supervise keeps a server on the cluster until Stop. It is the only owner of the running postmaster.
func (s *Server) supervise(p *postmaster) {
	defer close(s.closed)
	defer s.home.close()
	for {
		select {
		case <-s.closing:
			s.err = p.stop(s.stopCtx)
			return
		case <-p.exited:
		}
		s.log.Warn("the database server died; starting it again", "reason", p.log.last())
		begun := time.Now()
		if p = s.revive(); p == nil {
			return // stopped meanwhile
		}
		s.log.Info("the database server is back", "took", time.Since(begun).Round(time.Millisecond))
	}
}

// revive boots until it succeeds, or returns nil when Stop comes first: a full disk or a lack of memory passes, and
// nobody else would start the server then.
func (s *Server) revive() *postmaster {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		p, err := s.boot(ctx)
		if err == nil {
			return p
		}
		s.log.Error("the database server does not start", "error", err, "next_try", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// Stop shuts the private server down cleanly: open transactions are aborted, and what was committed is on disk. When
// ctx ends first it is stopped the hard way, which costs a recovery at the next start, and the error is ctx's. A
// further Stop waits for the first. A cluster that somebody else runs is left alone.
func (s *Server) Stop(ctx context.Context) error {
	if s.home == nil {
		return nil
	}
	s.once.Do(func() {
		s.stopCtx = ctx
		close(s.closing)
	})
	<-s.closed
	return s.err
}
