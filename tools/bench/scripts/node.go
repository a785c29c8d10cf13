package scripts

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed peers.js
var driver []byte

// isolatedVM is the version that is measured.
const isolatedVM = "isolated-vm@5"

// peers measures the engines that need node. Each is skipped where it cannot be had, with the reason.
func peers(ctx context.Context, cfg Config, r *Report) error {
	node, err := exec.LookPath("node")
	if err != nil {
		r.Skipped[NodeVM], r.Skipped[Isolated] = "there is no node", "there is no node"
		return nil
	}
	dir, err := os.MkdirTemp("", "bench-runtime")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "peers.js")
	if err := os.WriteFile(path, driver, 0o600); err != nil {
		return err
	}
	for _, x := range []struct {
		engine Engine
		mode   string
	}{{NodeVM, "vm"}, {Isolated, "isolated"}} {
		if x.engine == Isolated {
			if why := install(ctx, dir); why != "" {
				r.Skipped[x.engine] = why
				continue
			}
		}
		if err := peer(ctx, cfg, r, x.engine, node, path, x.mode); err != nil {
			r.Skipped[x.engine] = err.Error()
		}
	}
	return ctx.Err()
}

func install(ctx context.Context, dir string) (why string) {
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--prefix", dir, isolatedVM)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("npm install %s: %v: %.300s", isolatedVM, err, bytes.TrimSpace(out))
	}
	return ""
}

func peer(ctx context.Context, cfg Config, r *Report, e Engine, node, path, mode string) error {
	ask, err := json.Marshal(map[string]any{"mode": mode, "scripts": cfg.Scripts, "round": cfg.Round.Milliseconds(), "callsOf": callsOf,
		"tiny": tiny, "oneCall": oneCall, "manyCalls": manyCalls, "transform": transform})
	if err != nil {
		return err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, node, "--no-node-snapshot", path, string(ask))
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Dir(path), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %.300s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var values []float64
	if err := json.Unmarshal(stdout.Bytes(), &values); err != nil || len(values) != len(rows) {
		return errors.New("the driver did not say what it measured")
	}
	for i, row := range rows {
		r.set(e, row.name, values[i])
	}
	return nil
}
