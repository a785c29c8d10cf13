package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/execwarden/execwarden/libs/problem"
)

// Pool opens a pool of at most ten connections, or of pool_max_conns in the URL. It waits for the first connection,
// so that a wrong URL is told at the start. The pool is the caller's to close. The codes of its errors are
// problem.Invalid (the URL) and problem.Unavailable.
func Pool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the database URL is malformed")
	}
	if !strings.Contains(url, "pool_max_conns") {
		cfg.MaxConns = 10
	}
	cfg.MaxConnLifetime = time.Hour
	cfg.MaxConnLifetimeJitter = 5 * time.Minute
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	for name, value := range map[string]string{
		"application_name": superuser,
		"timezone":         "UTC",
		// A session that hangs inside a transaction holds its locks, and the ledger's cursor with them.
		"idle_in_transaction_session_timeout": "60s",
	} {
		if cfg.ConnConfig.RuntimeParams[name] == "" {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the database URL cannot be used")
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, problem.Wrap(err, problem.Unavailable, "the database does not answer")
	}
	return pool, nil
}
