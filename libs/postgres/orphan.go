package postgres

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// stopOrphan stops a server that a dead process of ours left on the cluster. It is stopped and not taken over: it
// is nobody's child, its log goes nowhere, and its settings are those of another version of this program.
//
// The caller holds the home's lock, so no living process of ours owns that server.
func (h *home) stopOrphan(ctx context.Context, log *slog.Logger) error {
	pid, err := h.orphan()
	if err != nil || pid == 0 {
		return err
	}
	log.WarnContext(ctx, "stopping the database server that an earlier process left", "pid", pid)
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{
		{syscall.SIGINT, 30 * time.Second},  // fast: transactions are aborted, then a clean shutdown
		{syscall.SIGQUIT, 10 * time.Second}, // immediate: the next start recovers from the log
	} {
		if err := syscall.Kill(pid, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return problem.Wrap(err, problem.Denied, "may not stop the database server with process id %d", pid)
		}
		gone, err := h.awaitGone(ctx, pid, step.wait)
		if gone || err != nil {
			return err
		}
	}
	return problem.New(problem.Conflict, "the database server with process id %d does not stop", pid)
}

func (h *home) awaitGone(ctx context.Context, pid int, wait time.Duration) (bool, error) {
	deadline := time.After(wait)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if !serves(pid, h.cluster()) {
			return true, nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// orphan returns the process id of the server on the cluster, or 0. A file that a crash left behind is Postgres's
// own business: it tells by itself whether that process still lives.
func (h *home) orphan() (int, error) {
	file, err := os.ReadFile(filepath.Join(h.cluster(), "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, problem.Wrap(err, problem.Invalid, "cannot read who uses the cluster")
	}
	first, _, _ := bytes.Cut(file, []byte("\n"))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(first)))
	if err != nil || pid <= 1 || pid == os.Getpid() || !serves(pid, h.cluster()) {
		return 0, nil
	}
	return pid, nil
}

// serves tells whether process pid is a server on the cluster. The id alone would not do: it may have been given to
// another process since, and that one must not be signalled.
func serves(pid int, cluster string) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	if runtime.GOOS == "linux" {
		// A postmaster's working directory is its cluster. A zombie has none, and it serves nobody.
		cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
		if err != nil {
			return false
		}
		real, err := filepath.EvalSymlinks(cluster)
		return err == nil && cwd == real
	}
	out, err := exec.CommandContext(context.Background(), "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), "postgres") && strings.Contains(string(out), cluster)
}
