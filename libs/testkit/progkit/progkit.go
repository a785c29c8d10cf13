// Package progkit gives tests programs of this repository to run.
package progkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Build gives the path of a static program, by its package, that lives as long as the test. A test process builds each
// once and keeps it in memory, so that nothing is left behind.
func Build(t testing.TB, program string) string {
	t.Helper()
	mu.Lock()
	build, ok := built[program]
	if !ok {
		build = sync.OnceValues(func() ([]byte, error) { return compile(program) })
		built[program] = build
	}
	mu.Unlock()
	raw, err := build()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(program))
	if err := os.WriteFile(path, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	mu    sync.Mutex
	built = map[string]func() ([]byte, error){}
)

func compile(program string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "prog")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "program")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return os.ReadFile(path)
}
