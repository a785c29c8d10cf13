package host

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/execwarden/execwarden/libs/duplex"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/schemas/visit"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// loginShell is what a person has who names no command.
var loginShell = []string{"/bin/sh", "-c", "if command -v bash >/dev/null; then exec bash -i; fi; exec sh -i"}

// hupGrace is the time that a shell has to end by itself once it was hung up.
const hupGrace = 5 * time.Second

// beginShell begins a person's command in the cage of every other, once.
func (h *Host) beginShell(ctx context.Context, p *place, v connector.Visit, o connector.OpenVisit) error {
	args := machine.ExecArgs{Argv: v.Argv, Background: true, Timeout: int(maxTimeout.Seconds())}
	if len(args.Argv) == 0 {
		args.Argv = loginShell
	}
	if v.Term != "" {
		args.Env = map[string]string{"TERM": v.Term}
	}
	spec, err := h.spec(p, connector.Order{Call: id.Call(v.Visit)}, args)
	if err != nil {
		return err
	}
	spec.Digest, spec.KeepIn, spec.Timeout = permit.Digest(o.Visit), true, connector.VisitLife
	if v.Terminal {
		spec.TTY = &shim.Size{Rows: o.Rows, Cols: o.Cols}
	}
	if err := h.mayGrow(ctx, p); err != nil {
		return err
	}
	leave, err := h.pass(p.lease.Volume)
	if err != nil {
		return err
	}
	defer leave()
	e, err := p.shim.Begin(ctx, spec)
	if err != nil {
		return err
	}
	switch e.Reason {
	case shim.Denied:
		return problem.New(problem.Denied, "%s", e.Message)
	case shim.NotBegun:
		return problem.New(problem.Invalid, "the command could not be started: %s", e.Message)
	}
	h.follow(p, spec.ID)
	return nil
}

// keepShell hangs a shell up whose person stays away, and notes its end.
func (h *Host) keepShell(ctx context.Context, g *visitor) {
	name := string(g.Visit.Visit)
	var hung time.Time
	for {
		e, err := g.place.shim.Get(ctx, name, lookAtLife)
		if ctx.Err() != nil {
			return // the next life goes on
		}
		if problem.CodeOf(err) == problem.Unavailable {
			if e, err = shim.RecordOf(g.place.dir, name); err != nil { // the shim is gone, and may have left no record yet
				if _, attached := h.place(g.Attachment); attached {
					pause(ctx, lookAtLife)
					continue
				}
			}
		}
		if err != nil {
			e = shim.Exec{ID: name, Reason: shim.Lost, Code: -1, Ended: time.Now()}
		}
		if !e.Running() {
			g.finish(visit.Ended{Reason: e.Reason, Code: e.Code, Signal: e.Signal, In: e.Fed, Out: e.Bytes, SHA256: e.SHA256, Survivors: e.Survivors})
			return
		}
		switch {
		case g.away() < connector.VisitAway:
		case hung.IsZero():
			hung = time.Now()
			_, _ = g.place.shim.Signal(ctx, name, "HUP") // else it is stopped
		case time.Since(hung) > hupGrace:
			_, _ = g.place.shim.Stop(ctx, name, shim.Hangup, hupGrace) // it is asked again
		}
	}
}

// serveShell joins a shell's output and input to its person, until it has ended and they know, or this life has.
func (h *Host) serveShell(ctx context.Context, g *visitor, s *stream) {
	feeding, stop := context.WithCancel(ctx)
	defer stop()
	h.working.Go(func() { h.feedShell(feeding, g, s) })
	name := string(g.Visit.Visit)
	at := s.Written()
	for ctx.Err() == nil {
		out, err := g.place.shim.Read(ctx, name, at, duplex.MaxPiece, waitsFor)
		if err != nil {
			e, recordErr := shim.RecordOf(g.place.dir, name)
			if recordErr == nil {
				h.endShell(ctx, s, e)
				return
			}
			pause(ctx, lookAtLife)
			continue
		}
		for _, p := range out.Pieces {
			piece := duplex.Piece{Stream: byte(p.Stream), Data: p.Data}
			if p.Lost > 0 {
				piece = duplex.Piece{Stream: duplex.Gap, Lost: p.Lost}
			}
			// A person who is slow, or away, holds up only what they are shown: the command writes into its spool.
			if s.Write(ctx, piece) != nil {
				return
			}
		}
		if at = out.Next; !out.Exec.Running() && at >= out.Exec.Bytes {
			h.endShell(ctx, s, out.Exec)
			return
		}
	}
}

func (h *Host) endShell(ctx context.Context, s *stream, e shim.Exec) {
	word, err := json.Marshal(execOf(e))
	if err != nil {
		return
	}
	s.Finish(word)
	drain(ctx, s)
}

// feedShell gives a shell what its person sends: in order, each byte once.
func (h *Host) feedShell(ctx context.Context, g *visitor, s *stream) {
	name := string(g.Visit.Visit)
	_, at := s.At()
	for {
		p, err := s.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		piece := shim.Fed{From: at, Data: p.Data, EOF: err != nil}
		switch {
		case p.Stream == connector.VisitSize && len(p.Data) == 4:
			piece.Size = &shim.Size{Rows: binary.BigEndian.Uint16(p.Data), Cols: binary.BigEndian.Uint16(p.Data[2:])}
		case p.Stream == connector.VisitSignal:
			piece.Signal = string(p.Data)
		}
		for end := at + int64(len(p.Data)); ; {
			e, askErr := g.place.shim.Feed(ctx, name, piece)
			if problem.CodeOf(askErr) == problem.Conflict || askErr == nil && e.Fed >= end {
				at = end // what takes no input any more is fed into the void
				break
			}
			if ctx.Err() != nil {
				return
			}
			if askErr != nil {
				pause(ctx, lookAtLife)
			}
		}
		s.Took(at)
		if err != nil {
			if string(s.Last()) == connector.VisitLeave {
				g.leave()
			}
			return
		}
	}
}
