package host

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/execwarden/execwarden/libs/duplex"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// keepPreview ends a preview whose person leaves or stays away, or whose attachment has ended.
func (h *Host) keepPreview(ctx context.Context, g *visitor) {
	reason := ""
	for began := time.Now(); reason == "" && ctx.Err() == nil; {
		pause(ctx, lookAtLife)
		g.endSilent()
		_, attached := h.place(g.Attachment)
		switch {
		case !attached:
			reason = shim.Revoked
		case g.away() >= connector.VisitAway || time.Since(began) > connector.VisitLife:
			reason = shim.Hangup
		case g.left():
			reason = shim.Exited
		}
	}
	if reason == "" {
		return // the next life
	}
	g.finish(visit.Ended{Reason: reason})
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.streams {
		s.stop()
	}
}

// silentFor is how long a connection is kept whose other side says nothing, not even that it is there.
const silentFor = time.Minute

// endSilent ends connections whose other side went away without a word.
func (g *visitor) endSilent() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for number, s := range g.streams {
		if number != 0 && time.Since(s.Heard()) > silentFor {
			s.stop()
		}
	}
}

// leave notes that the person left.
func (g *visitor) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
}

// left says that the stream that held a preview open has ended.
func (g *visitor) left() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone
}

// servePresence holds a preview open until its person leaves.
func (h *Host) servePresence(ctx context.Context, g *visitor, s *stream) {
	for {
		p, err := s.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, io.EOF) {
			s.Finish(nil)
			drain(ctx, s)
			g.leave()
			return
		}
		s.Took(p.End)
	}
}

// serveConn joins a connection inside to the person's. It ends when both directions have, or one of the sides is gone.
func serveConn(ctx context.Context, g *visitor, s *stream, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // nobody reads or writes it then
	back := make(chan struct{})
	go func() {
		defer close(back)
		buffer := make([]byte, duplex.MaxPiece)
		for {
			n, err := conn.Read(buffer)
			if n > 0 {
				g.count(0, n)
				if s.Write(ctx, duplex.Piece{Stream: connector.VisitStdout, Data: buffer[:n]}) != nil {
					return
				}
			}
			if err != nil {
				s.Finish(nil)
				drain(ctx, s)
				return
			}
		}
	}()
	for {
		p, err := s.Next(ctx)
		if err != nil {
			break
		}
		if _, err := conn.Write(p.Data); err != nil {
			break
		}
		g.count(len(p.Data), 0)
		s.Took(p.End)
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // one that is gone reads no more either
	}
	<-back
	_ = conn.Close()
}
