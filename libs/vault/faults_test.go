package vault

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

// lossy is a bucket of which one write goes wrong: it is stored or not, and its writer does not learn.
type lossy struct {
	jetstream.KeyValue
	at    int // counted from 1
	store bool
	n     int
}

var errLost = errors.New("the answer was lost")

func (l *lossy) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if l.n++; l.n != l.at {
		return l.KeyValue.Update(ctx, key, value, revision)
	}
	if l.store {
		if _, err := l.KeyValue.Update(ctx, key, value, revision); err != nil {
			return 0, err
		}
	}
	return 0, errLost
}

// Wherever a rewrap or a renewal is cut off, stored or not stored, everything opens, and doing it again finishes it.
func TestCutOff(t *testing.T) {
	b := buskit.Start(t)
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "master.key")
	master, err := LoadMaster(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Open(ctx, b.Conn(t, string(schemas.Toolbroker)), master)
	if err != nil {
		t.Fatal(err)
	}
	names := func(id.Tenant) []string { return []string{"con_a", "con_b"} }
	tenants := []id.Tenant{}
	for i := range 2 {
		tenants = append(tenants, id.Tenant(fmt.Sprint("tnt_", i)))
		for _, name := range names("") {
			if _, err := whole.Put(ctx, tenants[i], name, NewSecret(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	opens := func(what string) {
		t.Helper()
		for _, tenant := range tenants {
			for _, name := range names(tenant) {
				if got, err := whole.Get(ctx, tenant, name); err != nil || got.Reveal() != name {
					t.Fatalf("%s: %s of %s: %v", what, name, tenant, err)
				}
			}
		}
	}
	for at := 1; at <= 3; at++ {
		for _, store := range []bool{true, false} {
			what := fmt.Sprintf("write %d, stored %t", at, store)
			cut := *whole
			cut.kv = &lossy{KeyValue: whole.kv, at: at, store: store}
			if _, err := RotateFile(path, Replace); err != nil {
				t.Fatal(err)
			}
			got, err := cut.Rewrap(ctx, tenants, names, false)
			if err != nil || at <= 2 && got.Remaining != 1 {
				t.Fatalf("%s: %+v, %v", what, got, err)
			}
			opens(what)
			cut.kv = &lossy{KeyValue: whole.kv, at: at, store: store}
			if got, err := cut.Renew(ctx, "tnt_0", names("")); (err == nil) != (at > 1) || at > 1 && got.Remaining != 1 {
				t.Fatalf("%s, renewing: %+v, %v", what, got, err)
			}
			opens(what)
			if got, err := whole.Rewrap(ctx, tenants, names, false); err != nil || got.Remaining != 0 {
				t.Fatalf("%s, again: %+v, %v", what, got, err)
			}
			current, err := master.Current(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := PruneFile(path, current); err != nil || n != 1 {
				t.Fatalf("%s: pruned %d, %v", what, n, err)
			}
			opens(what + ", pruned")
		}
	}
}
