package postgres

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// stopGrace is how long a child's pipes may stay open after it died: backends that outlive a killed postmaster hold
// them, and shared memory, until they notice.
const stopGrace = 5 * time.Second

// settings are the server's, over its own defaults. What a query was or which values it held is never logged.
var settings = map[string]string{
	"listen_addresses":                    "",
	"port":                                "5432",
	"unix_socket_permissions":             "0700",
	"max_connections":                     "60",
	"shared_buffers":                      "128MB",
	"fsync":                               "on",
	"full_page_writes":                    "on",
	"synchronous_commit":                  "on",
	"timezone":                            "UTC",
	"lc_messages":                         "C", // complaints are read by programs too
	"logging_collector":                   "off",
	"log_destination":                     "stderr",
	"log_line_prefix":                     "",
	"log_error_verbosity":                 "terse",
	"log_min_error_statement":             "panic",
	"log_checkpoints":                     "off",
	"idle_in_transaction_session_timeout": "60s",
}

// postmaster is one life of the server.
type postmaster struct {
	process *os.Process
	log     *lineLog
	exited  chan struct{} // closed when it, and all that held its output, are gone
}

// launch starts a server on the home's cluster.
func launch(h *home, binDir string, extra map[string]string, log *slog.Logger) (*postmaster, error) {
	args := []string{"-D", h.cluster(), "-k", h.socket}
	for _, set := range []map[string]string{settings, extra} { // the later one wins
		for _, name := range slices.Sorted(maps.Keys(set)) {
			args = append(args, "-c", name+"="+set[name])
		}
	}
	cmd := exec.Command(filepath.Join(binDir, "postgres"), args...)
	cmd.Dir = h.dir
	cmd.Env = environment()
	cmd.SysProcAttr = h.owner.attributes()
	diesWithUs(cmd.SysProcAttr)
	cmd.WaitDelay = stopGrace
	p := &postmaster{log: &lineLog{log: log, what: "postgres"}, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log

	started := make(chan error)
	go func() {
		// The signal at our death is bound to the thread that forked, not to the process. So that thread stays, in
		// Wait, for as long as the server lives; it ends with this goroutine because it is never unlocked.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended is in its log; that it ended is what counts
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.process = cmd.Process
	return p, nil
}

// environment is all that a Postgres program gets of ours: the rest may hold secrets, and whoever runs as the
// server's user could read them.
func environment() []string {
	env := []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// stop asks for a fast shutdown, and for an immediate one (crash recovery at the next start) when ctx ends first.
func (p *postmaster) stop(ctx context.Context) error {
	_ = p.process.Signal(syscall.SIGINT) // it fails only if the process is gone
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
	}
	_ = p.process.Signal(syscall.SIGQUIT)
	select {
	case <-p.exited:
	case <-time.After(stopGrace):
		_ = p.process.Kill()
		<-p.exited // bounded by WaitDelay
	}
	return ctx.Err()
}
