package store

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

const nodesIn = `SELECT h.level, h.n, h.hash FROM ledger_hash h JOIN unnest($3::smallint[], $4::bigint[]) AS want (level, n)
	ON h.level = want.level AND h.n = want.n WHERE h.tenant = $1 AND h.stream = $2`

// compareNodes holds the stored subtrees against the computed ones. It narrows a change that was made to a body and
// its leaf alike down to 256 leaves, even where checkpoints are further apart.
func (in *inspection) compareNodes(ctx context.Context, nodes []merkle.Node) error {
	type place struct {
		level int
		n     int64
	}
	kept := make(map[place]merkle.Hash)
	var levels []int16
	var indexes []int64
	for _, n := range nodes {
		if isKept(n.Level) {
			kept[place{n.Level, n.Index}] = n.Hash
			levels, indexes = append(levels, int16(n.Level)), append(indexes, n.Index)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	rows, err := in.tx.Query(ctx, nodesIn, in.head.Tenant, in.head.Stream, levels, indexes)
	if err != nil {
		return err
	}
	var at place
	var stored []byte
	_, err = pgx.ForEachRow(rows, []any{&at.level, &at.n, &stored}, func() error {
		if want := kept[at]; !bytes.Equal(stored, want[:]) {
			in.add(Tampered, at.n<<at.level, (at.n+1)<<at.level-1, 0, "", "the subtree's stored hash is not that of its leaves")
		}
		delete(kept, at)
		return nil
	})
	for at := range kept {
		in.add(Incomplete, at.n<<at.level, (at.n+1)<<at.level-1, 0, "", "the subtree's stored hash is missing")
	}
	return err
}

// compareHead holds the stored head against the leaves.
func (in *inspection) compareHead() {
	size := in.tree.Size()
	switch {
	case in.broken:
		return
	case in.head.Size > size:
		in.add(Incomplete, size, in.head.Size-1, 0, "", "the tree's head counts leaves that are missing")
	case in.head.Size < size:
		in.add(Tampered, in.head.Size, size-1, 0, "", "the tree's head does not count these leaves")
	case size > 0 && !bytes.Equal(pack(&in.tree), in.head.peaks):
		in.add(Tampered, 0, size-1, 0, "", "the tree's head is not that of its leaves")
	}
}
