package host

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// probe is the attachment that this process has with itself, to try whether the machine works. Whether its process lives
// is told by a lock that the kernel lets go of with it.
type probe struct {
	*place
	lock *os.File
}

// probing starts a probe's name.
const probing = "att_probe-"

// ownerFile is locked by whoever has the probe.
const ownerFile = "owner"

func (h *Host) newProbe(ctx context.Context) (*probe, error) {
	l := connector.Lease{Attachment: id.Attachment(probing + strings.ToLower(rand.Text())), Volume: ".probe"}
	dir := filepath.Join(h.cfg.Home, "attachments", string(l.Attachment))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the attachment's directory cannot be made: %v", err)
	}
	lock, err := lockOwner(dir, os.O_CREATE)
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the attachment's directory cannot be locked: %v", err)
	}
	p, err := h.ready(ctx, l)
	if err != nil {
		_, _, _ = h.driver.end(ctx, l.Attachment, false)
		_ = os.RemoveAll(dir) // else the next life does, both
		_ = lock.Close()
		return nil, err
	}
	return &probe{p, lock}, nil
}

func lockOwner(dir string, flag int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// close ends the probe.
func (p *probe) close(h *Host) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h.endProbe(ctx, p.place)
	p.place.close()
	_ = p.lock.Close() // it ends with the process at the latest
}

func (h *Host) endProbe(ctx context.Context, p *place) {
	_, err := p.shim.End(ctx, 0, shim.Cancelled)
	if _, _, err = h.driver.end(ctx, p.lease.Attachment, err == nil); err != nil {
		h.cfg.Log.Warn("a probe is not ended yet; the next life does", "err", err)
		return
	}
	_ = os.RemoveAll(p.dir) // else the next life does
}

// young is an age at which a probe's directory may not have its lock yet.
const young = time.Minute

// sweep ends the probes of lives that were killed, and what is left of attachments that ended.
func (h *Host) sweep(ctx context.Context) {
	left, _ := filepath.Glob(filepath.Join(h.cfg.Home, "attachments", probing+"*")) // the pattern is right
	for _, dir := range left {
		lock, err := lockOwner(dir, 0)
		if info, statErr := os.Stat(dir); os.IsNotExist(err) && statErr == nil && time.Since(info.ModTime()) > young {
			err = nil
		}
		if err != nil {
			continue // its process lives
		}
		p := &place{lease: connector.Lease{Attachment: id.Attachment(filepath.Base(dir))}, dir: dir, shim: shim.Dial(dir)}
		h.endProbe(ctx, p)
		p.close()
		if lock != nil {
			_ = lock.Close()
		}
	}
	err := h.driver.sweep(ctx, func(a id.Attachment) bool {
		_, err := os.Stat(filepath.Join(h.cfg.Home, "attachments", string(a), leaseFile))
		return err == nil
	})
	if err != nil {
		h.cfg.Log.Warn("what earlier lives left is not removed yet", "err", err)
	}
}

// tryCommand runs a command as an order's would be.
func (h *Host) tryCommand(ctx context.Context) (shim.Exec, error) {
	spec := shim.Spec{ID: "probe-" + strings.TrimPrefix(string(id.New[id.Call]()), "call_"), Digest: "probe", Argv: []string{"/bin/sh", "-c", "echo works"}, Cwd: h.probe.volume, Env: []string{"PATH=/usr/bin:/bin"}, Timeout: 5 * time.Second}
	if _, err := h.probe.shim.Begin(ctx, spec); err != nil {
		return shim.Exec{}, err
	}
	e, err := h.probe.shim.Get(ctx, spec.ID, 6*time.Second)
	switch {
	case err != nil:
		return e, err
	case e.Running() || e.Code != 0 || e.Bytes != int64(len("works\n")):
		return e, problem.New(problem.Unavailable, "a command could not be run: %s %s", e.Reason, e.Message)
	}
	_ = os.RemoveAll(filepath.Join(h.probe.dir, "execs", spec.ID)) // nobody asks for it again
	return e, nil
}

// Probe implements link.Machine.
func (h *Host) Probe(ctx context.Context) error {
	if _, err := h.tryCommand(ctx); err != nil {
		return err
	}
	path := filepath.Join(h.probe.volume, "moved")
	want := string(id.New[id.Call]())
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		return problem.Wrap(err, problem.Unavailable, "a file could not be written: %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		return problem.Wrap(err, problem.Unavailable, "a file could not be read back")
	}
	return nil
}
