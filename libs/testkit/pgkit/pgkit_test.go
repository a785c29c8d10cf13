package pgkit_test

import (
	"testing"

	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/libs/testkit/pgkit"
)

func TestMain(m *testing.M) { pgkit.Main(m) }

func TestDatabasesAreApart(t *testing.T) {
	for range 2 {
		pool, err := postgres.Pool(t.Context(), pgkit.Database(t))
		if err != nil {
			t.Fatal(err)
		}
		// The second CREATE would fail if both tests shared a database.
		if _, err := pool.Exec(t.Context(), `CREATE TABLE mine (n int)`); err != nil {
			t.Error(err)
		}
		pool.Close()
	}
}
