package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed npm/package.json npm/package-lock.json
var pinned embed.FS

// tree is where npm installed what is pinned.
type tree string

// install installs what is pinned, once for each lock file, and gives where.
func install(ctx context.Context, cache string) (tree, error) {
	lock, err := pinned.ReadFile("npm/package-lock.json")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	dir, err := filepath.Abs(filepath.Join(cache, hex.EncodeToString(sum[:6])))
	if err != nil {
		return "", err
	}
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return tree(dir), nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		raw, err := pinned.ReadFile("npm/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	// Not "npm ci": it refuses a lock file in which an optional package of another system has no version.
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--prefix", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w: %.2000s", err, bytes.TrimSpace(out))
	}
	// A crash here has everything installed again.
	return tree(dir), os.WriteFile(done, nil, 0o644)
}

// command makes a command of an installed package, by the installed node: the machine's may be too old for it.
func (t tree) command(ctx context.Context, bin string, args ...string) *exec.Cmd {
	return t.script(ctx, filepath.Join(string(t), "node_modules", ".bin", bin), args...)
}

func (t tree) script(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(string(t), "node_modules", "node", "bin", "node"), append([]string{path}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// exitCode is the code that a command ended with, where it ended by itself.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}
