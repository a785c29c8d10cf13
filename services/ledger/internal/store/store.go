package store

import (
	"context"
	"embed"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/libs/problem"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store is the ledger in one database. It is safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool

	// commit is a seam for fault tests: they fail it with and without the transaction being kept.
	commit func(context.Context, pgx.Tx) error
}

// New returns the ledger in the pool's database, which Migrate has prepared. The pool stays the caller's.
func New(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, commit: func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }}
}

// Migrate brings the ledger's tables up to date. Several instances may do it at once.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return problem.Wrap(err, problem.Internal, "the ledger has no migrations")
	}
	return postgres.Migrate(ctx, pool, files, "ledger_migration")
}

// read runs do in a transaction that sees one state of the database, and of it the tenant's rows alone.
func (s *Store) read(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	if tenant == "" {
		return problem.New(problem.Invalid, "a query needs a tenant")
	}
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var restrict pgx.Batch
		restrict.Queue(`SET LOCAL ROLE execwarden_ledger_reader`)
		restrict.Queue(`SELECT set_config('ew.tenant', $1, true)`, tenant)
		if err := tx.SendBatch(ctx, &restrict).Close(); err != nil {
			return err
		}
		return do(tx)
	})
	return failed(err, "the ledger could not be read")
}

// failed gives an error of the database a code. Errors that have one keep it, and so do those of the context.
func failed(err error, what string) error {
	var known *problem.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return problem.Wrap(err, problem.Unavailable, "%s", what)
}

// refusesData tells whether the database refused the values themselves (classes 22, data exception, and 54, program
// limit exceeded), so that trying again with the same ones cannot help.
func refusesData(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code[:2] == "22" || e.Code[:2] == "54")
}
