package store

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

const (
	putCheckpoint = `INSERT INTO ledger_checkpoint (tenant, stream, size, root, note) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT DO NOTHING`
	rootAt           = `SELECT root FROM ledger_checkpoint WHERE tenant = $1 AND stream = $2 AND size = $3`
	checkpointsAfter = `SELECT tenant, stream, size, root, note, recorded_at FROM ledger_checkpoint
		WHERE tenant = $1 AND stream = $2 AND size > $3 ORDER BY size LIMIT $4`
	firstCovering = `SELECT tenant, stream, size, root, note, recorded_at FROM ledger_checkpoint
		WHERE tenant = $1 AND stream = $2 AND size > $3 ORDER BY size LIMIT 1`
	checkpointStreams = `SELECT DISTINCT stream FROM ledger_checkpoint WHERE tenant = $1`
)

// Checkpoint is a saved signed head.
type Checkpoint struct {
	Tenant, Stream string
	Size           int64
	Root           []byte // as stored; the note is what is signed
	Note           []byte
	RecordedAt     time.Time
}

// SaveCheckpoint keeps a signed head. Saving it again is no error. Another root for a size that has one already is
// problem.Conflict: the tree was changed in between, and an alarm is due.
func (s *Store) SaveCheckpoint(ctx context.Context, tenant, stream string, c merkle.Checkpoint, note []byte) error {
	var kept []byte
	marked := int64(0)
	var b pgx.Batch // sent as one implicit transaction
	b.Queue(putCheckpoint, tenant, stream, c.Size, c.Root[:], note)
	b.Queue(rootAt, tenant, stream, c.Size).QueryRow(func(row pgx.Row) error { return row.Scan(&kept) })
	b.Queue(markTree, tenant, stream, c.Size).Exec(func(tag pgconn.CommandTag) error {
		marked = tag.RowsAffected()
		return nil
	})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return failed(err, "the checkpoint could not be saved")
	}
	switch {
	case !bytes.Equal(kept, c.Root[:]):
		return problem.New(problem.Conflict, "the tree of %s in %s had another root at size %d: verify the ledger", tenant, stream, c.Size)
	case marked != 1:
		return problem.New(problem.Conflict, "the tree of %s in %s is smaller than its checkpoint of size %d: verify the ledger", tenant, stream, c.Size)
	}
	return nil
}

// Checkpoints lists the tenant's checkpoints of a stream whose size is over after, in order. The last one's size
// continues the list; fewer than limit means that this was all.
func (s *Store) Checkpoints(ctx context.Context, tenant, stream string, after int64, limit int) (list []Checkpoint, err error) {
	err = s.read(ctx, tenant, func(tx pgx.Tx) error {
		list, err = listCheckpoints(ctx, tx, tenant, stream, after, bound(limit))
		return err
	})
	return list, err
}

func listCheckpoints(ctx context.Context, tx pgx.Tx, tenant, stream string, after int64, limit int) ([]Checkpoint, error) {
	rows, err := tx.Query(ctx, checkpointsAfter, tenant, stream, after, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Checkpoint, error) { return scanCheckpoint(row) })
}

func scanCheckpoint(row pgx.Row) (c Checkpoint, err error) {
	err = row.Scan(&c.Tenant, &c.Stream, &c.Size, &c.Root, &c.Note, &c.RecordedAt)
	return c, err
}
