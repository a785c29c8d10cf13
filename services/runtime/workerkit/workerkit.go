// Package workerkit gives tests a jsworker program to run scripts with.
package workerkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const program = "github.com/execwarden/execwarden/services/runtime/cmd/jsworker"

// build makes the program once per test process and keeps it in memory, so that nothing is left behind.
var build = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "jsworker")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "jsworker")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build jsworker: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// BuildWorker gives the path of a jsworker program that lives as long as the test.
func BuildWorker(t testing.TB) string {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jsworker")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
