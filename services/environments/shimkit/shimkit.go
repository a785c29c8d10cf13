// Package shimkit gives tests a shim program to run commands with.
package shimkit

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/testkit/progkit"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

// BuildShim gives the path of a shim program that lives as long as the test.
func BuildShim(t testing.TB) string {
	t.Helper()
	return progkit.Build(t, "github.com/execwarden/execwarden/services/environments/cmd/shim")
}

// EndAll ends the shims of a connector's home, which outlive it.
func EndAll(home string) {
	dirs, _ := filepath.Glob(filepath.Join(home, "attachments", "*")) // the pattern is right
	for _, dir := range dirs {
		c := shim.Dial(dir)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, _ = c.End(ctx, 0, shim.Cancelled) // one that is gone has ended
		cancel()
		c.Close()
	}
}
