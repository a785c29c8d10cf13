package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/libs/testkit/pgkit"
)

func TestMain(m *testing.M) { pgkit.Main(m) }

func setup(t testing.TB) *Store {
	t.Helper()
	pool, err := postgres.Pool(t.Context(), pgkit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return New(pool)
}

const activity = "EW_ACTIVITY"

// record makes event number seq: the tenants take turns, and a run has ten events of its tenant.
func record(seq uint64, tenants int) Record {
	tenant := fmt.Sprintf("tenant_%d", seq%uint64(tenants))
	run := fmt.Sprintf("run_%d", seq/uint64(10*tenants))
	noun, kind := "call", "requested"
	if seq%10 == 0 {
		noun, kind = "run", "started"
	}
	at := time.Date(2026, 11, 30, 12, 0, 0, int(seq%1e6)*1000, time.UTC)
	id := fmt.Sprintf("evt_%d", seq)
	return Record{
		Stream: activity, Incarnation: "first", Seq: seq, Tenant: tenant,
		Subject:  fmt.Sprintf("ew.v1.%s.%s.%s.%s", tenant, noun, run, kind),
		Raw:      fmt.Appendf(nil, `{"id":%q,"type":"ew.%s.%s.v1","run":%q,"data":{"n":%d,"tool":"github.create_issue","args":{"b":1.50,"a":[1,2,3]}}}`, id, noun, kind, run, seq),
		StoredAt: at,
		Meta: Meta{
			EventID: id, Type: "ew." + noun + "." + kind + ".v1", Noun: noun, Key: run, Kind: kind, Time: at,
			Actor: fmt.Sprintf("agent_%d", seq%3), Run: run, Call: fmt.Sprintf("call_%d", seq),
		},
	}
}

func records(from, to uint64, tenants int) []Record {
	var batch []Record
	for seq := from; seq <= to; seq++ {
		batch = append(batch, record(seq, tenants))
	}
	return batch
}

func ingest(t testing.TB, s *Store, batch []Record) {
	t.Helper()
	if err := s.Ingest(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

func execute(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t testing.TB, s *Store, sql string, args ...any) (n int64) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// tamper does what somebody with the rights of a superuser can do.
func tamper(t testing.TB, s *Store, sql string, args ...any) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica`); err != nil { // no triggers
			return err
		}
		tag, err := tx.Exec(t.Context(), sql, args...)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("changed nothing")
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// failCommit makes the next commit fail, with the transaction kept or not.
func failCommit(s *Store, kept bool) {
	real := s.commit
	s.commit = func(ctx context.Context, tx pgx.Tx) error {
		s.commit = real
		if kept {
			if err := tx.Commit(ctx); err != nil {
				return err
			}
		} else if err := tx.Rollback(ctx); err != nil {
			return err
		}
		return fmt.Errorf("injected: the connection broke")
	}
}
