package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// keptEvery is the distance of the levels that are stored.
const keptEvery = 8

func isKept(level int) bool { return level > 0 && level%keptEvery == 0 }

// partsOf reads, for each of the ranges in $3 to $6, the hashes of a stored level or, at level 0, of the leaves. The
// numbers of rows are bounded by the caller.
const partsOf = `SELECT want.ord, h.hash FROM unnest($3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[]) AS want (ord, level, lo, hi)
	CROSS JOIN LATERAL (
		SELECT n, hash FROM ledger_hash WHERE want.level > 0
			AND tenant = $1 AND stream = $2 AND level = want.level AND n >= want.lo AND n < want.hi
		UNION ALL
		SELECT tseq, leaf_hash FROM ledger_leaf WHERE want.level = 0
			AND tenant = $1 AND stream = $2 AND tseq >= want.lo AND tseq < want.hi
	) h ORDER BY want.ord, h.n`

// tenantNode is a subtree of a tenant's tree.
type tenantNode struct {
	tenant string
	merkle.Node
}

func copyHashes(ctx context.Context, tx pgx.Tx, stream string, nodes []tenantNode) error {
	if len(nodes) == 0 {
		return nil
	}
	columns := []string{"tenant", "stream", "level", "n", "hash"}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"ledger_hash"}, columns, pgx.CopyFromSlice(len(nodes), func(i int) ([]any, error) {
		n := &nodes[i]
		return []any{n.tenant, stream, int16(n.Level), n.Index, n.Hash[:]}, nil
	}))
	return err
}

// hashReader reads any complete subtree of one tree: it folds those that are not stored from those that are.
type hashReader struct {
	ctx            context.Context // tlog's interface has no room for one; the reader lives for one call
	tx             pgx.Tx
	tenant, stream string
}

func (r hashReader) ReadHashes(indexes []int64) ([]merkle.Hash, error) {
	var ords, los, his []int64
	var levels []int16
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		stored := level - level%keptEvery
		up := level - stored // at most seven levels, so at most 128 parts
		ords, levels = append(ords, int64(i)), append(levels, int16(stored))
		los, his = append(los, n<<up), append(his, (n+1)<<up)
	}
	rows, err := r.tx.Query(r.ctx, partsOf, r.tenant, r.stream, ords, levels, los, his)
	if err != nil {
		return nil, err
	}
	parts := make([][]merkle.Hash, len(indexes))
	var ord int64
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&ord, &hash}, func() error {
		if len(hash) != tlog.HashSize {
			return problem.New(problem.Internal, "a stored hash is damaged: verify the ledger")
		}
		parts[ord] = append(parts[ord], merkle.Hash(hash))
		return nil
	})
	if err != nil {
		return nil, err
	}
	hashes := make([]merkle.Hash, len(indexes))
	for i := range parts {
		if int64(len(parts[i])) != his[i]-los[i] {
			return nil, problem.Wrap(fmt.Errorf("%d of %d parts of subtree %d", len(parts[i]), his[i]-los[i], indexes[i]),
				problem.Internal, "stored hashes are missing: verify the ledger")
		}
		if hashes[i], err = merkle.Fold(parts[i]); err != nil {
			return nil, err
		}
	}
	return hashes, nil
}
