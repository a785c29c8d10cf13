package postgres

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/libs/problem"
)

// setup returns a directory that the server's user may enter (t.TempDir is closed to others). Its name has what tends
// to be forgotten in URLs and settings.
func setup(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "p +%&\"g")
}

// syncBuffer is a log that a test reads while the server writes.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func start(t *testing.T, cfg Config) (*Server, *syncBuffer) {
	t.Helper()
	logged := new(syncBuffer)
	s, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatalf("start: %v\n%s", err, logged)
	}
	t.Cleanup(func() { stop(t, s) })
	return s, logged
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var got string
	if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func postmasterPID(t *testing.T, dataDir string) int {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(dataDir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(file), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestStartStopStart(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	s, logged := start(t, Config{DataDir: dir})
	execute(t, s.URL(), `CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)`)
	for setting, want := range map[string]string{
		"fsync": "on", "listen_addresses": "", "full_page_writes": "on", "synchronous_commit": "on", "data_checksums": "on",
	} {
		if got := query(t, s.URL(), `SHOW `+setting); got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
	if !strings.Contains(logged.String(), "performing post-bootstrap initialization") {
		t.Error("the steps of initdb are not in the log")
	}
	stop(t, s)
	stop(t, s) // again is harmless
	state, err := exec.Command(filepath.Join(s.binDir, "pg_controldata"), filepath.Join(dir, "data")).Output()
	if err != nil || !strings.Contains(string(state), "shut down") {
		t.Errorf("after Stop the cluster is not shut down: %v\n%s", err, state)
	}

	again, _ := start(t, Config{DataDir: dir})
	if got := query(t, again.URL(), `SELECT n::text FROM kept`); got != "7" {
		t.Errorf("kept %q", got)
	}
	if again.URL() != s.URL() {
		t.Errorf("the URL moved from %s to %s", s.URL(), again.URL())
	}
}

func TestServerDoesNotInheritSecrets(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	t.Setenv("EXECWARDEN_MASTER_KEY", "canary-6d1f")
	dir := setup(t)
	start(t, Config{DataDir: dir})
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(postmasterPID(t, dir)), "environ"))
	if err != nil || bytes.Contains(env, []byte("canary-6d1f")) {
		t.Errorf("the server's environment: %q, %v", env, err)
	}
}

func TestSecondOwnerIsRefused(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	s, _ := start(t, Config{DataDir: dir})
	if _, err := Start(t.Context(), Config{DataDir: dir}, slog.New(slog.DiscardHandler)); problem.CodeOf(err) != problem.Conflict {
		t.Fatalf("a second process on the same cluster: %v", err)
	}
	query(t, s.URL(), `SELECT 'the first is unharmed'`)
}

func TestKilledPostmasterComesBack(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	s, logged := start(t, Config{DataDir: dir})
	execute(t, s.URL(), `CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)`)
	pool, err := Pool(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := syscall.Kill(postmasterPID(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(logged.String(), "is back") {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("it did not come back\n%s", logged)
		}
	}
	var n int
	err = pool.QueryRow(t.Context(), `SELECT n FROM kept`).Scan(&n)
	if err != nil { // the one connection that died with the server
		err = pool.QueryRow(t.Context(), `SELECT n FROM kept`).Scan(&n)
	}
	if err != nil || n != 7 {
		t.Errorf("after the kill: %d, %v", n, err)
	}
}

// TestKilledOwner kills the process that owns the server with no chance to clean up.
func TestKilledOwner(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	victim := exec.CommandContext(t.Context(), os.Args[0])
	victim.Env = append(os.Environ(), "POSTGRES_TEST_VICTIM="+dir)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(url, "postgres://") {
		t.Fatalf("the victim says %q, %v", url, err)
	}
	url = strings.TrimSpace(url)
	execute(t, url, `CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)`)
	pid := postmasterPID(t, dir)
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // it was killed
	if runtime.GOOS == "linux" {
		// The kernel tells the server, which shuts down without anybody starting anew.
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for serves(pid, filepath.Join(dir, "data")) {
			<-tick.C
		}
	}

	s, _ := start(t, Config{DataDir: dir})
	if got := query(t, s.URL(), `SELECT n::text FROM kept`); got != "7" {
		t.Errorf("kept %q", got)
	}
	if now := postmasterPID(t, dir); now == pid {
		t.Errorf("the orphan %d still serves", pid)
	}
}

// TestOrphanIsStopped is the same where the kernel does not tell the server of our death.
func TestOrphanIsStopped(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	s, _ := start(t, Config{DataDir: dir})
	home, bin := s.home, s.binDir
	stop(t, s)

	orphan := exec.Command(filepath.Join(bin, "postgres"), "-D", home.cluster(), "-k", home.socket, "-c", "listen_addresses=")
	orphan.Dir = dir
	orphan.SysProcAttr = home.owner.attributes()
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- orphan.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for pid := 0; pid == 0; <-tick.C {
		pid, _ = home.orphan()
	}

	again, logged := start(t, Config{DataDir: dir})
	if err := <-gone; err != nil {
		t.Errorf("the orphan was not stopped cleanly: %v", err)
	}
	if !strings.Contains(logged.String(), "an earlier process left") {
		t.Error("the log does not say that an orphan was stopped")
	}
	query(t, again.URL(), `SELECT 'up'`)
}

// TestForeignPIDIsNotSignalled: after a crash the process id in the file may be anybody's, here our own parent's.
func TestForeignPIDIsNotSignalled(t *testing.T) {
	t.Parallel()
	for _, pid := range []string{strconv.Itoa(os.Getppid()), "0", "-1", "1", "99999999999999999999", "", "junk"} {
		h := &home{dir: t.TempDir()}
		if err := os.Mkdir(h.cluster(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(h.cluster(), "postmaster.pid"), []byte(pid+"\n"+h.cluster()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := h.orphan(); got != 0 || err != nil {
			t.Errorf("pid %q: would signal %d, %v", pid, got, err)
		}
	}
}

func TestCrashInInitdb(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	half := filepath.Join(dir, "data.new")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := start(t, Config{DataDir: dir})
	query(t, s.URL(), `SELECT 'up'`)
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished cluster is still there: %v", err)
	}
}

// TestSocketElsewhere: some data directories cannot hold the socket.
func TestSocketElsewhere(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]string{"long": strings.Repeat("long/", 25), "comma": "a,b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(setup(t), below)
			s, _ := start(t, Config{DataDir: dir})
			t.Cleanup(func() { os.RemoveAll(s.home.socket) })
			query(t, s.URL(), `SELECT 'up'`)
			if strings.HasPrefix(s.home.socket, dir) || len(filepath.Join(s.home.socket, socketName)) > maxSocketPath {
				t.Errorf("the socket is in %s", s.home.socket)
			}
		})
	}
}

func TestClosedParentIsNamed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	closed := filepath.Dir(setup(t))
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{DataDir: filepath.Join(closed, "pg")}, slog.New(slog.DiscardHandler))
	if problem.CodeOf(err) != problem.Invalid || !strings.Contains(err.Error(), "chmod o+x "+closed) {
		t.Errorf("a closed parent: %v", err)
	}
}

func TestBadSettingIsNamed(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Config{DataDir: setup(t), Settings: map[string]string{"shared_buffers": "lots"}}, slog.New(slog.DiscardHandler))
	if problem.CodeOf(err) != problem.Unavailable || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("a bad setting: %v", err)
	}
}

func TestSquattedSocketDirIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs a directory of another user")
	}
	h := &home{owner: account{name: "postgres", uid: 4242, switched: true}}
	for name, prepare := range map[string]func(string) error{
		"of another user": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 4243, 4243)) },
		"open to others": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777), os.Chown(dir, 4242, 4242))
		},
		"a link": func(dir string) error { return os.Symlink(os.TempDir(), dir) },
	} {
		dir := filepath.Join(t.TempDir(), "run")
		if err := prepare(dir); err != nil {
			t.Fatal(err)
		}
		if err := h.claimSocketDir(dir); problem.CodeOf(err) != problem.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExternalServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Config{DataDir: setup(t)})
	outside, err := Start(t.Context(), Config{URL: s.URL()}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := outside.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	query(t, outside.URL(), `SELECT 'still up'`)
	_, err = Start(t.Context(), Config{URL: "postgres:///x?host=/nowhere"}, slog.New(slog.DiscardHandler))
	if problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a server that is not there: %v", err)
	}
}
