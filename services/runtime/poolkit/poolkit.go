// Package poolkit runs scripts in the runtime's own pool without a bus, for programs that measure it.
package poolkit

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// Pool is the pool of script workers.
type Pool struct{ pool *sandbox.Pool }

// Config is the part of the pool's settings that a measurement varies. Zero fields have the pool's defaults.
type Config struct {
	WorkerPath                string
	Ready, Running, PerTenant int
	Queue                     int
	Patience                  time.Duration
}

// Open starts a pool. Problems: as the runtime's own start.
func Open(ctx context.Context, c Config, log *slog.Logger) (*Pool, error) {
	p, err := sandbox.New(ctx, sandbox.Config{WorkerPath: c.WorkerPath, Ready: c.Ready, Running: c.Running, PerTenant: c.PerTenant, Queue: c.Queue, Patience: c.Patience}, log)
	if err != nil {
		return nil, err
	}
	return &Pool{p}, nil
}

// Tier is how the pool's workers are isolated.
func (p *Pool) Tier() string { return string(p.pool.Tier()) }

// Ran is how a script was run.
type Ran struct {
	Took time.Duration
	Wait time.Duration // part of Took
	Warm bool          // in the worker of an earlier script of its run
}

// Run runs a script that may call the tool "a.b", which answers with its arguments. A script of no run ("") has a worker
// of its own.
func (p *Pool) Run(ctx context.Context, tenant, run, source string) (Ran, error) {
	got, err := p.pool.Run(ctx, tenant, sandbox.Script{Source: source, Now: time.UnixMilli(0), Run: run, Tools: []string{"a.b"}}, echo{})
	return Ran{Took: got.Stats.Wait + got.Stats.Wall, Wait: got.Stats.Wait, Warm: got.Stats.Warm}, err
}

// Spare starts a worker and ends it.
func (p *Pool) Spare(ctx context.Context) error { return p.pool.Spare(ctx) }

// Close ends the pool and every worker.
func (p *Pool) Close() { p.pool.Close() }

type echo struct{}

func (echo) CallTool(_ context.Context, c sandbox.Call) (json.RawMessage, error) { return c.Args, nil }
func (echo) Fetch(context.Context, sandbox.Request) (sandbox.Response, error) {
	return sandbox.Response{}, problem.New(problem.Denied, "a measurement fetches nothing")
}
func (echo) SearchTools(context.Context, sandbox.Search) (json.RawMessage, error) {
	return json.RawMessage("[]"), nil
}
func (echo) Artifact(context.Context, sandbox.Artifact) (sandbox.Kept, error) {
	return sandbox.Kept{Value: json.RawMessage("null")}, nil
}
func (echo) Started(context.Context) error { return nil }
func (echo) Refused(int) error             { return nil }
func (echo) Answered(int)                  {}
func (echo) Log(string, string)            {}
