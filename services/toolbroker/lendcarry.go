package toolbroker

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/services/toolbroker/internal/gitrelay"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// request is one request of git, while it is carried.
type request struct {
	*loan
	up, down *gitrelay.Pipe
	cancel   context.CancelCauseFunc
	answered chan struct{} // closed when the answer's kind is known, or there will be none
	kind     string
	moved    time.Time // under lending's lock

	// The last piece of each direction, which a machine that was cut off asks for again.
	putting, getting sync.Mutex
	put, got         int
	piece            *nats.Msg
}

// carry makes a request and hands its answer on.
func (l *lending) carry(ctx context.Context, r *request, lender upstream.Lender, ask upstream.Lent, gzipped bool) {
	end := func(err error) {
		r.up.End(err)
		r.down.End(err)
	}
	defer func() {
		select {
		case <-r.answered:
		default:
			close(r.answered)
		}
	}()
	// What waits in a pipe is woken when the call ends.
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	defer stop()
	if !ask.Refs {
		body := r.up.Reader(ctx)
		var err error
		switch {
		case gzipped && ask.Writes:
			err = problem.New(problem.Invalid, "a push is not compressed once more")
		case gzipped:
			body, err = gitrelay.Unzipped(body)
		case ask.Writes:
			body, err = gitrelay.Push{Ref: "refs/heads/" + r.lent.Branch, Commit: r.lent.Commit}.Check(body)
		}
		if err != nil {
			l.log.Warn("a git request of a machine is refused", "tenant", r.tenant, "environment", r.env, "call", r.work.Admitted.Call, "err", err)
			end(err)
			return
		}
		ask.Body = moving{body, func() { l.move(r) }}
	}
	resp, err := lender.Lend(ctx, ask)
	if err != nil {
		end(err)
		return
	}
	defer resp.Body.Close()
	r.kind = resp.Header.Get("Content-Type")
	close(r.answered)
	buffer := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			l.metrics.git.WithLabelValues("down").Add(float64(n))
			if putErr := r.down.Put(ctx, buffer[:n]); putErr != nil {
				end(putErr)
				return
			}
			l.move(r)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			r.up.End(problem.New(problem.Conflict, "the git server has answered already"))
			r.down.End(err)
			return
		}
	}
}

// moving tells of each read, so that a git server that takes its time is not taken for one that hangs.
type moving struct {
	io.Reader
	moved func()
}

func (m moving) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.moved()
	return n, err
}

func (l *lending) move(r *request) {
	l.mu.Lock()
	r.moved = l.now()
	l.mu.Unlock()
}

// put takes a piece of a request's body.
func (l *lending) put(r *request, m *nats.Msg) {
	if len(m.Data) > connector.MaxPiece {
		refuseGit(m, problem.New(problem.TooLarge, "a piece has at most %d bytes", connector.MaxPiece))
		return
	}
	n, err := strconv.Atoi(m.Header.Get(connector.HeaderGitSeq))
	r.putting.Lock()
	defer r.putting.Unlock()
	switch {
	case err == nil && n == r.put && n > 0:
		_ = m.Respond(nil) // whoever asked is gone
		return
	case err != nil || n != r.put+1:
		refuseGit(m, problem.New(problem.Conflict, "a piece out of turn"))
		return
	}
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.cfg.GitIdle, problem.New(problem.Timeout, "the git server takes nothing"))
	defer cancel()
	if err := r.up.Put(ctx, m.Data); err != nil {
		refuseGit(m, err)
		return
	}
	r.put = n
	l.metrics.git.WithLabelValues("up").Add(float64(len(m.Data)))
	l.move(r)
	if m.Header.Get(connector.HeaderGitLast) != "" {
		r.up.End(nil)
	}
	_ = m.Respond(nil) // whoever asked is gone
}

// get gives a piece of a response's body, or an empty one when there is none yet.
func (l *lending) get(r *request, m *nats.Msg) {
	n, err := strconv.Atoi(m.Header.Get(connector.HeaderGitSeq))
	r.getting.Lock()
	defer r.getting.Unlock()
	switch {
	case err == nil && n == r.got && n > 0:
		_ = m.RespondMsg(&nats.Msg{Subject: m.Reply, Header: r.piece.Header, Data: r.piece.Data}) // whoever asked is gone
		return
	case err != nil || n != r.got+1:
		refuseGit(m, problem.New(problem.Conflict, "a piece out of turn"))
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, pieceWithin)
	defer cancel()
	out := nats.NewMsg(m.Reply)
	var last bool
	select {
	case <-r.answered:
		if out.Data, last, err = r.down.Take(ctx, connector.MaxPiece); err != nil {
			refuseGit(m, err)
			return
		}
		out.Header.Set(connector.HeaderGitType, r.kind)
		if last {
			out.Header.Set(connector.HeaderGitLast, "1")
		}
		l.move(r)
	case <-ctx.Done(): // an empty piece: the git server takes its time
	}
	r.got, r.piece = n, out
	_ = m.RespondMsg(out) // whoever asked is gone
}

// forget lets go of a request that is over, once it was read or nobody reads it.
func (l *lending) forget(name string, r *request) {
	if r.down.Fault() == nil {
		read, cancel := context.WithTimeout(l.ctx, keepAnswer)
		r.down.Emptied(read)
		cancel()
	}
	l.mu.Lock()
	l.carried--
	r.requests--
	r.idle = l.now()
	l.mu.Unlock()
	timer := time.NewTimer(keepEnd)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.requests, name)
}

// look ends what nothing moves in, and what belongs to calls that are over or attachments that have ended.
func (l *lending) look() {
	l.mu.Lock()
	for _, r := range l.requests {
		if l.now().Sub(r.moved) > l.cfg.GitIdle {
			r.cancel(problem.New(problem.Timeout, "nothing came from the git server, or from git, for %s (git_idle)", l.cfg.GitIdle))
		}
	}
	loans := slices.Collect(maps.Values(l.loans))
	l.mu.Unlock()
	for _, one := range loans {
		err := l.attachedStill(one)
		if err == nil {
			err = context.Cause(one.ctx)
		}
		if err == nil {
			err = l.underway(one)
		}
		l.mu.Lock()
		over := one.ctx.Err() != nil || err != nil && !executor.Later(err)
		if over {
			for _, r := range l.requests {
				if r.loan == one {
					r.cancel(err)
				}
			}
		}
		if one.requests == 0 && (over || l.now().Sub(one.idle) > keepAnswer) {
			delete(l.loans, one.work.Admitted.Call)
			one.leave()
		}
		l.mu.Unlock()
	}
}
