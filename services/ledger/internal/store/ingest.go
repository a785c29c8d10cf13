package store

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

// row is a record made ready to be stored, before any lock is taken.
type row struct {
	Record
	leaf merkle.Hash
	doc  []byte
	tseq int64
}

// Ingest takes in a batch: records of one stream in the order of their sequences, which follow each other. What the
// ledger has already is dropped; a batch that it has all of is no error. When Ingest returns nil, the batch is
// durable and can be acked; on an error, send the batch again, which is safe however far it came. The errors to
// tell apart are GapError and IncarnationError (errors.As): they do not go away by themselves.
func (s *Store) Ingest(ctx context.Context, batch []Record) error {
	if len(batch) == 0 {
		return nil
	}
	if err := checkBatch(batch); err != nil {
		return err
	}
	rows := make([]row, len(batch))
	for i, r := range batch {
		r.Meta, r.Subject = r.Meta.storable(), printable(r.Subject)
		rows[i] = row{Record: r, leaf: merkle.Leaf(r.Raw), doc: docOf(r.Raw)}
	}
	err := s.ingest(ctx, rows)
	if refusesData(err) {
		// docOf let something through that this Postgres does not take. The ledger must go on, and the documents are
		// a convenience: the bytes are stored either way.
		for i := range rows {
			rows[i].doc = nil
		}
		err = s.ingest(ctx, rows)
	}
	return failed(err, "the batch could not be stored")
}

func checkBatch(batch []Record) error {
	first := batch[0]
	for i, r := range batch {
		switch {
		case r.Stream == "" || r.Tenant == "" || len(r.Tenant) > maxMeta || printable(r.Tenant) != r.Tenant:
			return problem.New(problem.Invalid, "record %d of the batch names no stream or no tenant", i)
		case r.Stream != first.Stream || r.Incarnation != first.Incarnation:
			return problem.New(problem.Invalid, "the batch mixes streams")
		case r.Seq == 0 || r.Seq > math.MaxInt64:
			return problem.New(problem.Invalid, "record %d of the batch has no sequence", i)
		case i > 0 && r.Seq <= batch[i-1].Seq:
			return problem.New(problem.Invalid, "the batch is out of order at sequence %d", r.Seq)
		case i > 0 && r.Seq != batch[i-1].Seq+1:
			return gap(r.Stream, batch[i-1].Seq+1, r.Seq)
		}
	}
	return nil
}

// ingest is one transaction with a fixed number of round trips, whatever the number of tenants.
func (s *Store) ingest(ctx context.Context, rows []row) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // no effect after the commit

	last, trees, err := lockStream(ctx, tx, rows)
	if err != nil {
		return err
	}
	// From here this is the stream's only writer, and stays it until the transaction ends.
	for len(rows) > 0 && rows[0].Seq <= last {
		rows = rows[1:] // delivered again
	}
	if len(rows) == 0 {
		return nil
	}
	stream := rows[0].Stream
	if rows[0].Seq != last+1 {
		return gap(stream, last+1, rows[0].Seq)
	}
	nodes := trees.grow(rows)
	if err := copyLeaves(ctx, tx, rows); err != nil {
		return err
	}
	if err := copyBodies(ctx, tx, rows); err != nil {
		return err
	}
	if err := copyHashes(ctx, tx, stream, nodes); err != nil {
		return err
	}
	if err := trees.finish(ctx, tx, rows, last); err != nil {
		return err
	}
	// A crash here loses the batch as a whole, and one after it loses only the ack: either way it comes again.
	return s.commit(ctx, tx)
}

// growing are the trees that a batch adds to, by tenant.
type growing map[string]*merkle.Frontier

// lockStream becomes the stream's writer. It returns the last sequence that the ledger has, and the trees.
func lockStream(ctx context.Context, tx pgx.Tx, rows []row) (last uint64, trees growing, err error) {
	first := rows[0]
	trees = make(growing)
	for _, r := range rows {
		trees[r.Tenant] = new(merkle.Frontier)
	}
	var b pgx.Batch
	b.Queue(makeCursor, first.Stream, first.Incarnation, int64(first.Seq))
	b.Queue(lockCursor, first.Stream).QueryRow(func(row pgx.Row) error {
		var incarnation string
		if err := row.Scan(&incarnation, &last); err != nil {
			return err
		}
		if incarnation != first.Incarnation {
			return problem.Wrap(&IncarnationError{first.Stream, incarnation, first.Incarnation}, problem.Conflict,
				"stream %s was made anew: the ledger does not continue it", first.Stream)
		}
		return nil
	})
	// Its snapshot is taken after the lock is ours, so it sees what the writer before us committed.
	b.Queue(treesToGrow, first.Stream, slices.Collect(maps.Keys(trees))).Query(func(rows pgx.Rows) error {
		var tenant string
		var size int64
		var peaks []byte
		_, err := pgx.ForEachRow(rows, []any{&tenant, &size, &peaks}, func() (err error) {
			trees[tenant], err = unpack(size, peaks)
			return err
		})
		return err
	})
	err = tx.SendBatch(ctx, &b).Close()
	return last, trees, err
}

// grow gives every row its place in its tenant's tree, and returns the subtrees to be kept.
func (g growing) grow(rows []row) []tenantNode {
	var kept []tenantNode
	var nodes []merkle.Node
	for i := range rows {
		tree := g[rows[i].Tenant]
		rows[i].tseq = tree.Size()
		nodes = tree.Append(rows[i].leaf, nodes[:0])
		for _, n := range nodes {
			if isKept(n.Level) {
				kept = append(kept, tenantNode{rows[i].Tenant, n})
			}
		}
	}
	return kept
}

// finish writes the new heads, the runs and the cursor in one round trip.
func (g growing) finish(ctx context.Context, tx pgx.Tx, rows []row, last uint64) error {
	stream := rows[0].Stream
	var tenants []string
	var sizes []int64
	var peaks [][]byte
	// Sorted, so that neighbours in the index are written together.
	for _, tenant := range slices.Sorted(maps.Keys(g)) {
		tree := g[tenant]
		tenants, sizes, peaks = append(tenants, tenant), append(sizes, tree.Size()), append(peaks, pack(tree))
	}
	var b pgx.Batch
	b.Queue(putTrees, stream, tenants, sizes, peaks)
	tallyRuns(rows).queue(&b, stream)
	moved := int64(0)
	b.Queue(moveCursor, stream, int64(last), int64(rows[len(rows)-1].Seq)).Exec(func(tag pgconn.CommandTag) error {
		moved = tag.RowsAffected()
		return nil
	})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if moved != 1 {
		return problem.New(problem.Internal, "the cursor of stream %s moved under its lock", stream)
	}
	return nil
}
