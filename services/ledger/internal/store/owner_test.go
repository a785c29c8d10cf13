package store

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/execwarden/execwarden/libs/testkit/pgkit"
)

// TestOrdinaryOwner runs the ledger as a managed Postgres would have it: the user owns the database and is no
// superuser. COPY and the policies must get along.
func TestOrdinaryOwner(t *testing.T) {
	t.Parallel()
	admin := setup(t) // it also makes the reader role
	owner := "owner_" + strings.ToLower(rand.Text())
	execute(t, admin.pool, `CREATE ROLE `+owner+` LOGIN`)
	t.Cleanup(func() { // cleanups run backwards: its database is gone by then, and admin's pool is still open
		if _, err := admin.pool.Exec(context.Background(), `DROP ROLE `+owner); err != nil {
			t.Error(err)
		}
	})
	cfg, err := pgxpool.ParseConfig(pgkit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	execute(t, admin.pool, `ALTER DATABASE `+cfg.ConnConfig.Database+` OWNER TO `+owner)
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET SESSION AUTHORIZATION `+owner)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	if err := Migrate(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "GRANT execwarden_ledger_reader TO "+owner) {
		t.Fatalf("an owner who may not make the role, nor be it: %v", err)
	}
	execute(t, admin.pool, `GRANT execwarden_ledger_reader TO `+owner)
	if err := Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s := New(pool)
	ingest(t, s, records(1, 500, 3))
	checkpoint(t, s, key)
	if r := verify(t, s, "tenant_1", trust()); r.Verdict() != Intact {
		t.Errorf("%s %v", r.Verdict(), r.Problems)
	}
	page, err := s.Events(t.Context(), EventQuery{Tenant: "tenant_2", Stream: activity})
	if err != nil || len(page.Events) != 100 || page.Events[0].Tenant != "tenant_2" {
		t.Errorf("%d events, %v", len(page.Events), err)
	}
}
