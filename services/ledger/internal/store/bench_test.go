package store

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/execwarden/execwarden/services/ledger/internal/merkle"
)

const benchBatch = 1000

// BenchmarkIngest against BenchmarkCopy is what the cursor, the trees and the runs cost on top of storing the rows.
// The cluster of pgkit does not fsync: EXECWARDEN_POSTGRES_URL names one that does.
func BenchmarkIngest(b *testing.B) {
	for _, tenants := range []int{3, 500} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			s := setup(b)
			next := uint64(1)
			for b.Loop() {
				b.StopTimer()
				batch := records(next, next+benchBatch-1, tenants)
				next += benchBatch
				b.StartTimer()
				ingest(b, s, batch)
			}
			b.ReportMetric(float64(next-1)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkCopy stores the same leaves and bodies in the same tables and does nothing else.
func BenchmarkCopy(b *testing.B) {
	s := setup(b)
	next := uint64(1)
	for b.Loop() {
		b.StopTimer()
		rows := make([]row, benchBatch)
		for i, r := range records(next, next+benchBatch-1, 3) {
			rows[i] = row{Record: r, leaf: merkle.Leaf(r.Raw), doc: docOf(r.Raw), tseq: int64(r.Seq)}
		}
		next += benchBatch
		b.StartTimer()
		err := pgx.BeginFunc(b.Context(), s.pool, func(tx pgx.Tx) error {
			if err := copyLeaves(b.Context(), tx, rows); err != nil {
				return err
			}
			return copyBodies(b.Context(), tx, rows)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(next-1)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkVerify(b *testing.B) {
	s := setup(b)
	const n = 20_000
	for from := uint64(1); from < n; from += benchBatch {
		ingest(b, s, records(from, from+benchBatch-1, 1))
		checkpoint(b, s, key)
	}
	for b.Loop() {
		if r := verify(b, s, "tenant_0", trust()); r.Verdict() != Intact {
			b.Fatal(r.Problems)
		}
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "leaves/s")
}
