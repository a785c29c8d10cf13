package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/execwarden/execwarden/libs/problem"
)

// maxSocketPath is what fits sockaddr_un on Linux with its closing zero; macOS has four bytes less.
const maxSocketPath = 103

// socketName is the file that Postgres makes for its port; the port has no other meaning on a Unix socket.
const socketName = ".s.PGSQL.5432"

// home is the data directory while this process owns it.
type home struct {
	dir    string // absolute
	socket string // directory of the socket
	owner  account
	lock   *os.File
}

func (h *home) cluster() string { return filepath.Join(h.dir, "data") }
func (h *home) staging() string { return filepath.Join(h.dir, "data.new") }
func (h *home) fetched() string { return filepath.Join(h.dir, "fetched") }

// major is the version that made the cluster; empty before there is one.
func (h *home) major() string {
	version, err := os.ReadFile(filepath.Join(h.cluster(), "PG_VERSION"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(version))
}

// openHome makes the directories and takes the lock. The caller closes the home it gets.
func openHome(cfg Config) (*home, error) {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%q is no data directory", cfg.DataDir)
	}
	h := &home{dir: dir}
	if h.owner, err = chooseAccount(cfg.RunUser, h.cluster()); err != nil {
		return nil, err
	}
	// Open to all to pass through; the cluster and the socket's directory inside are closed to others.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "cannot create the data directory %s", dir)
	}
	if err := h.owner.checkReach(dir); err != nil {
		return nil, err
	}
	if err := h.takeLock(); err != nil {
		return nil, err
	}
	if err := h.makeSocketDir(); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// takeLock makes this process the owner. A postmaster that runs while we hold the lock is an orphan: whoever
// started it is dead, because the kernel has dropped its lock. The descriptor is not inherited by the server.
func (h *home) takeLock() error {
	lock, err := os.OpenFile(filepath.Join(h.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return problem.Wrap(err, problem.Invalid, "cannot write to the data directory %s", h.dir)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return problem.Wrap(err, problem.Conflict, "another process uses the data directory %s", h.dir)
	}
	h.lock = lock
	return nil
}

func (h *home) close() { h.lock.Close() }

// makeSocketDir picks the first place whose path a socket and a URL can have. The name depends on the data directory alone, so
// that the socket is found again.
func (h *home) makeSocketDir() error {
	digest := sha256.Sum256([]byte(h.dir))
	short := "execwarden-" + hex.EncodeToString(digest[:6])
	places := []string{filepath.Join(h.dir, "run")}
	if runtimeDir := os.Getenv("XDG_RUNTIME_DIR"); runtimeDir != "" {
		places = append(places, filepath.Join(runtimeDir, short))
	}
	places = append(places, filepath.Join(os.TempDir(), short), filepath.Join("/tmp", short))
	for _, place := range places {
		// A comma separates hosts in a URL, and there is no way to quote it.
		if len(filepath.Join(place, socketName)) > maxSocketPath || strings.Contains(place, ",") || h.owner.checkReach(filepath.Dir(place)) != nil {
			continue
		}
		if err := h.claimSocketDir(place); err != nil {
			return err
		}
		h.socket = place
		return nil
	}
	return problem.New(problem.Invalid, "no directory for the database's socket: every path is over %d bytes, has a comma, or is closed to user %s", maxSocketPath, h.owner.name)
}

// claimSocketDir makes sure that the directory is the server's own. In a shared place such as /tmp anybody could
// have made it before us, to answer in the server's stead.
func (h *home) claimSocketDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = h.owner.give(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return problem.Wrap(err, problem.Invalid, "cannot create the socket's directory %s", dir)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return problem.Wrap(err, problem.Invalid, "cannot look into the socket's directory %s", dir)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid == uint32(os.Geteuid()) && stat.Uid != h.owner.uid && info.IsDir() {
		// A crash between Mkdir and give left it to us.
		if err := h.owner.give(dir); err != nil {
			return problem.Wrap(err, problem.Invalid, "cannot hand the socket's directory %s to user %s", dir, h.owner.name)
		}
		return nil
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || stat.Uid != h.owner.uid {
		return problem.New(problem.Denied, "%s must be a directory of user %s with mode 0700: somebody else made it", dir, h.owner.name)
	}
	return nil
}
