package host

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// Printed is output that goes to whoever follows a call. End is set, and nothing else, once it has ended.
type Printed struct {
	Call   id.Call
	Stream string // stdout, stderr, gap
	Offset int64
	Data   []byte
	Lost   int64
	End    json.RawMessage
}

// Bounds of what is passed on.
const (
	maxTails  = 1024                  // commands whose output is passed on at once; others' stays on the machine
	maxPiece  = 128 << 10             // bytes: each waits until it is on the bus's disk
	gather    = 50 * time.Millisecond // that little output is waited for to become more
	waitsFor  = 20 * time.Second      // one question for output
	retryTail = time.Second
)

// tail is a command whose output is to be passed on.
type tail struct {
	place *place
	call  string
}

// follow has a command's output passed on. It waits for nobody: what finds no room is read from the machine.
func (h *Host) follow(p *place, call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.following[call] {
		return
	}
	select {
	case h.tails <- tail{p, call}:
		h.following[call] = true
	default:
		h.cfg.Log.Warn("output is not passed on: too many commands run; exec_read has it", "exec", call)
	}
}

// followAgain passes on what commands of an earlier life printed since.
func (h *Host) followAgain(ctx context.Context, p *place) {
	list, err := p.shim.List(ctx)
	if err != nil {
		return
	}
	for _, e := range list {
		if _, _, ended := h.position(p, e.ID); !ended && !strings.HasPrefix(e.ID, browsing) {
			h.follow(p, e.ID)
		}
	}
}

// PassOn hands output to sink until ctx ends: of each command in order, and again from where sink took it last, also by
// another life of the connector. sink returns when it has it for good. A command never waits for it.
func (h *Host) PassOn(ctx context.Context, sink func(context.Context, Printed) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case t := <-h.tails:
			group.Go(func() error {
				h.passOn(ctx, t, sink)
				h.mu.Lock()
				delete(h.following, t.call)
				h.mu.Unlock()
				return nil
			})
		}
	}
}

// passOn follows one command to its end.
func (h *Host) passOn(ctx context.Context, t tail, sink func(context.Context, Printed) error) {
	at, begun, ended := h.position(t.place, t.call)
	for !ended && ctx.Err() == nil {
		limit := maxPiece
		if begun > 0 {
			limit = begun // what an earlier life may have passed on, to the byte: under its number the stream takes nothing else
		}
		out, err := t.place.shim.Read(ctx, t.call, at, limit, waitsFor)
		if err == nil && begun == 0 && out.Exec.Running() && out.Next-at < maxPiece/16 {
			pause(ctx, gather)
			out, err = t.place.shim.Read(ctx, t.call, at, maxPiece, 0)
		}
		if err != nil {
			if _, gone := os.Stat(filepath.Join(t.place.dir, "sock")); gone != nil {
				return // the attachment has ended, and its output with it
			}
			pause(ctx, retryTail)
			continue
		}
		// A crash from here on passes the same once more, under the same number: the stream takes it once.
		bytes := 0
		for _, p := range out.Pieces {
			bytes += len(p.Data)
		}
		h.keepPosition(t.place, t.call, at, bytes, false)
		begun = 0
		offset := at
		for _, p := range merged(out.Pieces) {
			one := Printed{Call: id.Call(t.call), Stream: streams[p.Stream], Offset: offset, Data: p.Data, Lost: p.Lost}
			if !h.hand(ctx, one, sink) {
				return
			}
			offset += int64(len(p.Data)) + p.Lost
		}
		at = out.Next
		if ended = !out.Exec.Running() && at >= out.Exec.Bytes; ended {
			raw, err := json.Marshal(execOf(out.Exec))
			if err != nil || !h.hand(ctx, Printed{Call: id.Call(t.call), Offset: at, End: raw}, sink) {
				return
			}
		}
	}
	if ended {
		h.keepPosition(t.place, t.call, at, 0, true)
	}
}

// merged puts what one stream printed without a break into one piece. What is read again, by the same limit, is merged as before.
func merged(pieces []shim.Piece) (out []shim.Piece) {
	for _, p := range pieces {
		if n := len(out); n > 0 && out[n-1].Stream == p.Stream && p.Lost == 0 && out[n-1].Lost == 0 {
			out[n-1].Data = append(out[n-1].Data, p.Data...)
			continue
		}
		p.Data = slices.Clip(p.Data)
		out = append(out, p)
	}
	return out
}

// hand gives a piece to sink until that has it.
func (h *Host) hand(ctx context.Context, p Printed, sink func(context.Context, Printed) error) bool {
	for {
		err := sink(ctx, p)
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		pause(ctx, retryTail)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func positionFile(p *place, call string) string { return filepath.Join(p.dir, "done", call+".out") }

// position is up to where a command's output was passed on for certain, how many bytes after that may have been, and whether
// that was all of it.
func (h *Host) position(p *place, call string) (at int64, begun int, ended bool) {
	raw, err := os.ReadFile(positionFile(p, call))
	if err != nil {
		return 0, 0, false
	}
	text, all := strings.CutSuffix(strings.TrimSpace(string(raw)), " end")
	first, second, _ := strings.Cut(text, " ")
	if at, err = strconv.ParseInt(first, 10, 64); err != nil {
		return 0, 0, false
	}
	if n, err := strconv.Atoi(second); err == nil {
		begun = min(max(n, 0), maxPiece)
	}
	return at, begun, all
}

// keepPosition writes it as a whole. It is not synced: one that is lost with the power passes on again what is stored, which
// readers leave out by its offset.
func (h *Host) keepPosition(p *place, call string, at int64, begun int, ended bool) {
	text := strconv.FormatInt(at, 10) + " " + strconv.Itoa(begun)
	if ended {
		text += " end"
	}
	path := positionFile(p, call)
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		h.cfg.Log.Debug("position of output not kept", "exec", call, "err", err)
	}
}
