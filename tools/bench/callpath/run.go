package callpath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/schemas"
)

// Run measures everything that cfg asks for. What it stores is in a temporary directory, gone when it returns.
func Run(ctx context.Context, cfg Config, log *slog.Logger) (r Report, err error) {
	if err := cfg.validate(); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "bench-path")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, s := range cfg.settings() {
		home := filepath.Join(dir, string(s.Transport)+"-"+string(s.Sync))
		if err := os.Mkdir(home, 0o700); err != nil {
			return r, err
		}
		if err := r.add(ctx, home, s, cfg, log); err != nil {
			return r, fmt.Errorf("%s, sync %s: %w", s.Transport, s.Sync, err)
		}
	}
	return r, nil
}

// add measures one setting.
func (r *Report) add(ctx context.Context, dir string, s Setting, cfg Config, log *slog.Logger) (err error) {
	h, err := newHouse(ctx, dir, s, log, false, newProvider(0, ""))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	t, err := newTenancy(ctx, h)
	if err != nil {
		return err
	}
	if err := r.addPaths(ctx, h, t, cfg); err != nil {
		return err
	}
	if cfg.Revokes == 0 {
		return nil
	}
	row, err := revocations(ctx, h, t, cfg)
	r.Revokes = append(r.Revokes, row)
	return err
}

func (r *Report) addPaths(ctx context.Context, h *house, t *tenancy, cfg Config) (err error) {
	most := slices.Max(cfg.Callers)
	ways, end, err := prepare(ctx, h, t, most)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	for _, n := range cfg.Callers {
		turns, err := measure(ctx, ways, n, cfg)
		if err != nil {
			return err
		}
		r.Paths = append(r.Paths, rows(h.setting, n, ways, turns)...)
	}
	return nil
}

// prepare makes the ways of a house ready for some callers.
func prepare(ctx context.Context, h *house, t *tenancy, callers int) (ways []way, end func() error, err error) {
	var conns [3]*bus.Conn
	for i := range conns {
		if conns[i], err = h.connect(ctx, bus.BootUser); err != nil {
			return nil, nil, err
		}
	}
	bare, err := newFloor(ctx, conns[0], conns[1], conns[2], callers)
	if err != nil {
		return nil, nil, err
	}
	client, err := newDirect(ctx, h.provider.URL())
	if err != nil {
		return nil, nil, errors.Join(err, bare.close())
	}
	end = func() error { return errors.Join(bare.close(), client.session.Close()) }
	a, _, err := t.agent(ctx, execTool, pureTool, keyedTool)
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	all := make([]*caller, callers)
	for i := range all {
		if all[i], err = newCaller(t.agentloop, a, i); err != nil {
			return nil, nil, errors.Join(err, end())
		}
	}
	whole := func(n Name, tool string, want func(schemas.Event) bool) way {
		return way{n, func(ctx context.Context, c int) error { return all[c].call(ctx, tool, want) }}
	}
	return []way{{Bare, bare.call}, whole(Exec, execTool, unattached), whole(Pure, pureTool, finished),
		whole(Keyed, keyedTool, finished), {Direct, client.call}}, end, nil
}
