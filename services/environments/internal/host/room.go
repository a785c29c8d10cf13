package host

import (
	"context"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// room is what a volume was found to hold.
type room struct {
	bytes int64
	at    time.Time
}

// measureEvery is how long what was measured counts.
const measureEvery = 10 * time.Second

// mayGrow says whether a volume may be written to. It is measured when that was not done lately.
func (h *Host) mayGrow(ctx context.Context, p *place) error {
	if !h.cfg.Policy.Limited() {
		return nil
	}
	return h.cfg.Policy.MayHold(h.measure(ctx, p))
}

func (h *Host) measure(ctx context.Context, p *place) int64 {
	h.mu.Lock()
	last := h.rooms[p.lease.Volume]
	h.mu.Unlock()
	if time.Since(last.at) < measureEvery {
		return last.bytes
	}
	now := room{sizeOf(ctx, p.volume), time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rooms[p.lease.Volume] = now
	return now.bytes
}

// forget has a volume measured before the next thing on it: what made room counts at once.
func (h *Host) forget(p *place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.rooms, p.lease.Volume)
}

// sizeOf is what a directory takes on the disk, in bytes. What cannot be looked at any more is not there any more.
func sizeOf(ctx context.Context, dir string) (bytes int64) {
	linked := map[uint64]bool{}
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Nlink > 1 && !info.IsDir() && linked[st.Ino] {
			return nil
		}
		if st.Nlink > 1 {
			linked[st.Ino] = true
		}
		bytes += st.Blocks * 512
		return nil
	})
	return bytes
}

// EndTooLarge implements link.Machine. It ends containers whose time is over as well.
func (h *Host) EndTooLarge(ctx context.Context) {
	h.endOverdue(ctx)
	if !h.cfg.Policy.Limited() {
		return
	}
	for _, p := range h.all() {
		if h.cfg.Policy.MayHold(h.measure(ctx, p)) == nil {
			continue
		}
		list, err := p.shim.List(ctx)
		if err != nil {
			continue // the next time
		}
		for _, e := range list {
			if e.Running() && !makesRoom(e.Argv) {
				h.cfg.Log.Warn("a command is ended: its volume is too large", "volume", p.lease.Volume, "exec", e.ID)
				_, _ = p.shim.Stop(ctx, e.ID, shim.TooLarge, 0) // the next time
			}
		}
	}
}

// makesRoom says that a command only removes: it is let through where nothing may be written, or nothing could be removed.
func makesRoom(argv []string) bool { return len(argv) > 0 && filepath.Base(argv[0]) == "rm" }
