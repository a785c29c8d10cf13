// Package pgkit gives tests a real Postgres: one private cluster for each test process, started by the first test
// that asks, and a fresh database for each test. Nothing has to be installed by hand or running before.
//
//	func TestMain(m *testing.M) { pgkit.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		pool, err := postgres.Pool(t.Context(), pgkit.Database(t))
//
// EXECWARDEN_POSTGRES_URL names a running cluster to use instead; its user must be allowed to create databases.
package pgkit

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/postgres"
)

// shared is the process's cluster.
var shared struct {
	sync.Mutex
	dir    string
	server *postgres.Server
	err    error // of the first start; a second try would fail alike
}

// Main runs the tests, takes the cluster down, and fails the process if a goroutine is left over.
func Main(m *testing.M) {
	code := m.Run()
	if err := takeDown(); err != nil {
		fmt.Fprintln(os.Stderr, "pgkit: the cluster did not stop:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "pgkit:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Database returns the URL of an empty database that is dropped when the test ends. The package's TestMain must
// call Main.
func Database(t testing.TB) string {
	t.Helper()
	server, err := start(t.Context())
	if err != nil {
		t.Fatalf("pgkit: no Postgres: %v", err)
	}
	name := "test_" + strings.ToLower(rand.Text())
	execute(t, server, `CREATE DATABASE `+name)
	t.Cleanup(func() {
		// FORCE, because a test that failed may have left its pool open.
		execute(t, server, `DROP DATABASE `+name+` WITH (FORCE)`)
	})
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatalf("pgkit: the cluster's URL: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

func start(ctx context.Context) (*postgres.Server, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil || shared.err != nil {
		return shared.server, shared.err
	}
	cfg := postgres.Config{URL: os.Getenv("EXECWARDEN_POSTGRES_URL")}
	if cfg.URL == "" {
		shared.dir, shared.err = os.MkdirTemp("", "pgkit-")
		if shared.err == nil {
			// The server's user has to get in when the tests run as root.
			shared.err = os.Chmod(shared.dir, 0o755)
		}
		cfg.DataDir = filepath.Join(shared.dir, "pg")
		// Only the power could take what these databases hold, and no test survives that.
		cfg.Settings = map[string]string{"fsync": "off", "full_page_writes": "off", "max_connections": "200"}
	}
	if shared.err == nil {
		shared.server, shared.err = postgres.Start(ctx, cfg, slog.New(slog.DiscardHandler))
	}
	return shared.server, shared.err
}

func takeDown() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		return os.RemoveAll(shared.dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := shared.server.Stop(ctx); err != nil {
		return err
	}
	return os.RemoveAll(shared.dir)
}

func execute(t testing.TB, server *postgres.Server, statement string) {
	t.Helper()
	// Not the test's context: it is over by the time the database is dropped.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL())
	if err != nil {
		t.Fatalf("pgkit: connect: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatalf("pgkit: %s: %v", statement, err)
	}
}
