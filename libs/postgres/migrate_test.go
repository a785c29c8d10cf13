package postgres

import (
	"sync"
	"testing"
	"testing/fstest"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := start(t, Config{DataDir: setup(t)})
	files := fstest.MapFS{
		"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (n int);\n")},
		"00002_b.sql": {Data: []byte("-- +goose Up\nINSERT INTO a VALUES (1);\n")},
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			pool, err := Pool(t.Context(), s.URL())
			if err != nil {
				t.Error(err)
				return
			}
			defer pool.Close()
			if err := Migrate(t.Context(), pool, files, "test_migration"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := query(t, s.URL(), `SELECT count(*)::text FROM a`); got != "1" {
		t.Errorf("the migrations ran %s times", got)
	}

	pool, err := Pool(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	files["00003_c.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE c (n int);\nSELECT no_such_function();\n")}
	if err := Migrate(t.Context(), pool, files, "test_migration"); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a broken migration: %v", err)
	}
	if got := query(t, s.URL(), `SELECT coalesce(to_regclass('c')::text, 'absent')`); got != "absent" {
		t.Error("half of a broken migration was kept")
	}
}

func TestPoolErrors(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]problem.Code{
		"postgres://user:hunter2@:::x":          problem.Invalid,
		"postgres://u:hunter2@127.0.0.1:1/none": problem.Unavailable,
	} {
		_, err := Pool(t.Context(), url)
		if problem.CodeOf(err) != want {
			t.Errorf("%s: %v", url, err)
		}
	}
}
