package host

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/checkpoint"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// gate is passed by whatever begins on a volume, and closed by whoever copies it.
func (h *Host) gate(volume string) *sync.RWMutex {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.gates[volume]
	if !ok {
		g = &sync.RWMutex{}
		h.gates[volume] = g
	}
	return g
}

// pass lets something begin on a volume until done is called.
func (h *Host) pass(volume string) (done func(), err error) {
	g := h.gate(volume)
	if !g.TryRLock() {
		return nil, problem.New(problem.Busy, "volume %s is being copied; try again when that is done", volume)
	}
	return g.RUnlock, nil
}

// quiet closes a volume for as long as it is copied. free says that nobody may hold it; otherwise nothing may run on it.
func (h *Host) quiet(ctx context.Context, volume string, free bool) (done func(), err error) {
	if !id.ValidName(volume) {
		return nil, problem.New(problem.Invalid, "volume %.60q is no name", volume)
	}
	g := h.gate(volume)
	if !g.TryLock() {
		return nil, problem.New(problem.Busy, "something is being done on volume %s; try again", volume)
	}
	if err := h.idle(ctx, volume, free); err != nil {
		g.Unlock()
		return nil, err
	}
	return g.Unlock, nil
}

// idle looks at every attachment of the volume that is on the machine, also one of an earlier life.
func (h *Host) idle(ctx context.Context, volume string, free bool) error {
	for _, l := range h.Known() {
		switch {
		case l.Volume != volume:
			continue
		case free:
			return problem.New(problem.Conflict, "volume %s is attached on its machine; release it first", volume)
		}
		c := shim.Dial(filepath.Join(h.cfg.Home, "attachments", string(l.Attachment)))
		list, err := c.List(ctx)
		there := c.There(ctx)
		c.Close()
		if err != nil && there {
			return err
		}
		if slices.ContainsFunc(list, shim.Exec.Running) {
			return problem.New(problem.Conflict, "commands run on volume %s; wait for them, or release it", volume)
		}
	}
	return nil
}

func (h *Host) volumeDir(volume string) string { return filepath.Join(h.cfg.Policy.Volumes, volume) }

func (h *Host) checkpointsOf(volume string) string {
	return filepath.Join(h.cfg.Home, "checkpoints", volume)
}

// Checkpoint implements link.Machine. Of those that are kept the oldest makes room.
func (h *Host) Checkpoint(ctx context.Context, c connector.Checkpoint) (out connector.Checkpointed, err error) {
	keep := h.cfg.Policy.Checkpoints
	switch {
	case c.Generation < 1:
		return out, problem.New(problem.Invalid, "generation %d is no number of a checkpoint", c.Generation)
	case keep == 0:
		return out, problem.New(problem.Denied, "the machine keeps no checkpoints (the machine's policy, rule checkpoints)")
	}
	done, err := h.quiet(ctx, c.Volume, false)
	if err != nil {
		return out, err
	}
	defer done()
	dir := h.checkpointsOf(c.Volume)
	m, hash, err := checkpoint.Make(ctx, h.volumeDir(c.Volume), filepath.Join(dir, strconv.Itoa(c.Generation)), c.Generation)
	if err != nil {
		return out, err
	}
	kept := generations(dir)
	for len(kept) > keep {
		// A crash here leaves one more, until the next checkpoint.
		if err := os.RemoveAll(filepath.Join(dir, strconv.Itoa(kept[0]))); err != nil {
			h.cfg.Log.Warn("an old checkpoint is not removed", "volume", c.Volume, "err", err)
			break
		}
		kept = kept[1:]
	}
	out = connector.Checkpointed{Manifest: hash, Skipped: m.Skipped, Kept: kept}
	out.Files, out.Bytes = m.Files()
	return out, nil
}

// generations lists the checkpoints in a directory, the oldest first.
func generations(dir string) []int {
	out := []int{}
	entries, _ := os.ReadDir(dir) // there are none where it is not
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// Restore implements link.Machine.
func (h *Host) Restore(ctx context.Context, r connector.Restore) (out connector.Copied, err error) {
	done, err := h.quiet(ctx, r.Volume, true)
	if err != nil {
		return out, err
	}
	defer done()
	return h.bring(ctx, filepath.Join(h.checkpointsOf(r.Volume), strconv.Itoa(r.Generation)), r.Manifest, r.Volume)
}

func (h *Host) bring(ctx context.Context, dir, hash, volume string) (out connector.Copied, err error) {
	uid, gid := h.cfg.Policy.Commands()
	m, err := checkpoint.Restore(ctx, dir, hash, h.volumeDir(volume), uid, gid)
	if err != nil {
		return out, err
	}
	out.Files, out.Bytes = m.Files()
	return out, nil
}

// Clone implements link.Machine.
func (h *Host) Clone(ctx context.Context, c connector.Clone) (out connector.Copied, err error) {
	if c.Volume == c.To {
		return out, problem.New(problem.Invalid, "a volume is not cloned to itself")
	}
	done, err := h.quiet(ctx, c.Volume, false)
	if err != nil {
		return out, err
	}
	defer done()
	there, err := h.quiet(ctx, c.To, true)
	if err != nil {
		return out, err
	}
	defer there()
	if _, err := os.Lstat(h.volumeDir(c.To)); err == nil {
		return out, problem.New(problem.Conflict, "the machine has a volume %s already", c.To)
	}
	if err := h.roomFor(c.To); err != nil {
		return out, err
	}
	dir := filepath.Join(h.cfg.Home, "checkpoints", cloning+rand.Text())
	defer os.RemoveAll(dir) // else the next life does
	_, hash, err := checkpoint.Make(ctx, h.volumeDir(c.Volume), dir, 0)
	if err != nil {
		return out, err
	}
	return h.bring(ctx, dir, hash, c.To)
}

// cloning starts the name of what a clone is copied through. No volume has such a name.
const cloning = ".clone-"

// sweepCopies removes what copies that a crash ended left.
func (h *Host) sweepCopies() {
	kept := filepath.Join(h.cfg.Home, "checkpoints")
	for _, pattern := range []string{filepath.Join(h.cfg.Policy.Volumes, checkpoint.Staging+"*"), filepath.Join(kept, cloning+"*"), filepath.Join(kept, "*", "*.new")} {
		checkpoint.Sweep(pattern)
	}
}
