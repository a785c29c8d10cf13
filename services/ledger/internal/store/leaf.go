package store

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

const (
	leavesFrom = `SELECT tseq, coalesce(event_id, ''), sseq, leaf_hash FROM ledger_leaf
		WHERE tenant = $1 AND stream = $2 AND tseq >= $3 ORDER BY tseq LIMIT $4`
	leafStreams = `WITH RECURSIVE s AS (
			(SELECT stream FROM ledger_leaf WHERE tenant = $1 ORDER BY stream LIMIT 1)
			UNION ALL
			SELECT (SELECT l.stream FROM ledger_leaf l WHERE l.tenant = $1 AND l.stream > s.stream ORDER BY l.stream LIMIT 1)
			FROM s WHERE s.stream IS NOT NULL
		) SELECT stream FROM s WHERE stream IS NOT NULL`
)

// leafRow is a stored leaf. Its hash is as it was found: if it is not 32 bytes long, somebody changed it.
type leafRow struct {
	tseq    int64
	eventID string
	sseq    int64
	hash    []byte
}

func copyLeaves(ctx context.Context, tx pgx.Tx, rows []row) error {
	columns := []string{"tenant", "stream", "tseq", "event_id", "sseq", "leaf_hash"}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger_leaf"}, columns, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		r := &rows[i]
		return []any{r.Tenant, r.Stream, r.tseq, orNull(r.Meta.EventID), int64(r.Seq), r.leaf[:]}, nil
	}))
	return err
}

// Leaf is one leaf with its body.
type Leaf struct {
	TreeSeq int64
	Hash    merkle.Hash
	Event   Event // Raw is nil when the body is gone
}

// Leaves yields the leaves [from, to) of a tree with their bodies, in order, for an export that somebody verifies
// elsewhere. It holds a few of them in memory at a time. An error is the last thing that it yields.
func (s *Store) Leaves(ctx context.Context, tenant, stream string, from, to int64) iter.Seq2[Leaf, error] {
	return func(yield func(Leaf, error) bool) {
		stopped := false
		err := s.read(ctx, tenant, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, leavesWithBodies, tenant, stream, from, to)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				leaf, err := scanLeaf(rows)
				if err != nil {
					return err
				}
				if stopped = !yield(leaf, nil); stopped {
					return nil
				}
			}
			return rows.Err()
		})
		if err != nil && !stopped {
			yield(Leaf{}, err)
		}
	}
}
