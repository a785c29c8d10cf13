package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// superuser is the cluster's only login role. It is the same for every operating-system user that is let in.
const superuser = "execwarden"

// ensureCluster makes the cluster if there is none.
func (h *home) ensureCluster(ctx context.Context, binDir string, log *slog.Logger) error {
	if _, err := os.Stat(filepath.Join(h.cluster(), "PG_VERSION")); err == nil {
		return h.admit() // the users may have changed since
	} else if !errors.Is(err, fs.ErrNotExist) {
		return problem.Wrap(err, problem.Invalid, "cannot look into the cluster %s", h.cluster())
	}
	begun := time.Now()
	log.InfoContext(ctx, "creating the database cluster", "dir", h.cluster(), "user", h.owner.name)
	if err := h.initdb(ctx, binDir, log); err != nil {
		return err
	}
	// initdb has fsynced the tree. A crash before the rename leaves data.new, which the next start removes; a crash
	// after it leaves a complete cluster whose access files ensureCluster writes again.
	if err := os.Rename(h.staging(), h.cluster()); err != nil {
		return problem.Wrap(err, problem.Invalid, "cannot put the cluster at %s", h.cluster())
	}
	if err := syncDir(h.dir); err != nil {
		return problem.Wrap(err, problem.Unavailable, "cannot make the cluster durable")
	}
	log.InfoContext(ctx, "created the database cluster", "took", time.Since(begun).Round(time.Millisecond))
	return h.admit()
}

func (h *home) initdb(ctx context.Context, binDir string, log *slog.Logger) error {
	if err := os.RemoveAll(h.staging()); err != nil {
		return problem.Wrap(err, problem.Invalid, "cannot remove an unfinished cluster")
	}
	if err := os.Mkdir(h.staging(), 0o700); err != nil {
		return problem.Wrap(err, problem.Invalid, "cannot create the cluster's directory")
	}
	if err := h.owner.give(h.staging()); err != nil {
		return problem.Wrap(err, problem.Invalid, "cannot hand the cluster's directory to user %s", h.owner.name)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "initdb"),
		"-D", h.staging(), "-U", superuser,
		"--encoding=UTF8", "--locale=C", // text is compared as bytes: the same order on every system
		"--data-checksums",
		"--auth-local=peer", "--auth-host=reject",
		"--no-instructions",
	)
	cmd.Dir = h.dir
	cmd.Env = environment()
	cmd.SysProcAttr = h.owner.attributes()
	cmd.WaitDelay = stopGrace
	out := &lineLog{log: log, what: "initdb"}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return problem.Wrap(err, problem.Unavailable, "initdb failed: %s", out.last())
	}
	return nil
}

// admit writes who may log in: ourselves and the server's user, both as the one role, over the socket only.
func (h *home) admit() error {
	me, err := user.Current()
	if err != nil {
		return problem.Wrap(err, problem.Internal, "cannot tell which user we are")
	}
	var ident strings.Builder
	fmt.Fprintf(&ident, "%s %q %s\n", superuser, me.Username, superuser)
	if h.owner.switched {
		fmt.Fprintf(&ident, "%s %q %s\n", superuser, h.owner.name, superuser)
	}
	files := map[string]string{
		"pg_hba.conf":   "local all all peer map=" + superuser + "\n",
		"pg_ident.conf": ident.String(),
	}
	for name, text := range files {
		path := filepath.Join(h.cluster(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return problem.Wrap(err, problem.Invalid, "cannot write %s", path)
		}
		if err := h.owner.give(path); err != nil {
			return problem.Wrap(err, problem.Invalid, "cannot hand %s to user %s", path, h.owner.name)
		}
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
