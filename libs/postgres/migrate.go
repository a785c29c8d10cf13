package postgres

import (
	"context"
	"errors"
	"hash/crc32"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/execwarden/execwarden/libs/problem"
)

// Migrate applies the goose migrations in the root of files that the database does not have yet. table remembers
// them: one for each owner of tables, so that owners can share a database. Instances that start at once wait for
// each other, for five minutes at most.
func Migrate(ctx context.Context, pool *pgxpool.Pool, files fs.FS, table string) (err error) {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(int64(crc32.ChecksumIEEE([]byte(table)))), // owners do not wait for each other
		lock.WithLockTimeout(1, 300),
		lock.WithUnlockTimeout(1, 10),
	)
	if err != nil {
		return problem.Wrap(err, problem.Internal, "cannot make a lock for the migrations of %s", table)
	}
	migrations, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(table),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true),
	)
	if err != nil {
		return problem.Wrap(err, problem.Internal, "the migrations of %s are malformed", table)
	}
	if _, err := migrations.Up(ctx); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the migrations of %s failed", table)
	}
	return nil
}
