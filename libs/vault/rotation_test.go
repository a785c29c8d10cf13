package vault_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/id"
)

// keyFile is a keyring's file, with one key.
func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "master.key")
	if _, err := vault.LoadMaster(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func opened(t *testing.T, path string) *vault.Keyring {
	t.Helper()
	m, err := vault.OpenMaster(path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func rotate(t *testing.T, path string, how vault.Rotation) string {
	t.Helper()
	name, err := vault.RotateFile(path, how)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func put(t *testing.T, v *vault.Vault, tenant id.Tenant, name string) {
	t.Helper()
	if _, err := v.Put(t.Context(), tenant, name, vault.NewSecret(canary+name)); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, v *vault.Vault, tenant id.Tenant, name string) {
	t.Helper()
	if got, err := v.Get(t.Context(), tenant, name); err != nil || got.Reveal() != canary+name {
		t.Fatalf("%s of %s: %v", name, tenant, err)
	}
}

// rewrap asks for the named tenants, whose secrets are con_a and con_b.
func rewrap(t *testing.T, v *vault.Vault, look bool, tenants ...id.Tenant) ask.Rewrapped {
	t.Helper()
	out, err := v.Rewrap(t.Context(), tenants, func(id.Tenant) []string { return []string{"con_a", "con_b", "con_none"} }, look)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRotateFile(t *testing.T) {
	path := keyFile(t)
	if _, err := vault.RotateFile(path, vault.Promote); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("nothing is staged: %v", err)
	}
	m := opened(t, path)
	first := wrap(t, m, canary)
	staged := rotate(t, path, vault.Stage)
	if current, ok := opens(t, m, first); !current || !ok {
		t.Error("a staged key seals")
	}
	for _, how := range []vault.Rotation{vault.Stage, vault.Replace} {
		if _, err := vault.RotateFile(path, how); problem.CodeOf(err) != problem.Conflict {
			t.Errorf("%s beside a staged key: %v", how, err)
		}
	}
	if promoted := rotate(t, path, vault.Promote); promoted != staged {
		t.Errorf("promoted %s, staged %s", promoted, staged)
	}
	if current, ok := opens(t, m, first); current || !ok {
		t.Error("the promoted key does not seal, or the earlier does not open")
	}
	second := wrap(t, m, canary)
	name := rotate(t, path, vault.Replace)
	third := wrap(t, m, canary)
	if _, err := vault.PruneFile(path, staged); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("pruned for a key that does not seal: %v", err)
	}
	for _, sealed := range [][]byte{first, second, third} {
		if _, ok := opens(t, m, sealed); !ok {
			t.Error("a key is lost")
		}
	}
	if n, err := vault.PruneFile(path, name); n != 2 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
	if _, ok := opens(t, m, second); ok {
		t.Error("a pruned key opens")
	}
	if current, ok := opens(t, m, third); !current || !ok {
		t.Error("pruning took the key that seals")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for range 63 {
		rotate(t, path, vault.Replace)
	}
	if _, err := vault.RotateFile(path, vault.Replace); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("more keys than can be read: %v", err)
	}
	opened(t, path)
	for _, bad := range []string{"", "AGE-SECRET-KEY-1"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.RotateFile(path, vault.Replace); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("a damaged file is rotated: %v", err)
		}
	}
}

// Of programs that rotate at once none loses another's key.
func TestRotateFileAtOnce(t *testing.T) {
	path := keyFile(t)
	var mu sync.Mutex
	var sealed [][]byte
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if _, err := vault.RotateFile(path, vault.Replace); err != nil {
				if problem.CodeOf(err) != problem.Conflict {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			sealed = append(sealed, wrap(t, opened(t, path), canary))
		})
	}
	wait.Wait()
	if len(sealed) == 0 {
		t.Fatal("nobody rotated")
	}
	for _, s := range sealed {
		if _, ok := opens(t, opened(t, path), s); !ok {
			t.Error("a key was lost")
		}
	}
}

// Two instances share one file, or have copies of it that arrive at different times; nobody ever meets a key that it
// does not know, and nothing is undone.
func TestRotationWithTwoInstances(t *testing.T) {
	for name, shared := range map[string]bool{"one file": true, "two copies": false} {
		t.Run(name, func(t *testing.T) {
			k := servicekit.Start(t)
			fileA := keyFile(t)
			fileB := fileA
			bring := func() {} // the file to the other instance
			if !shared {
				fileB = filepath.Join(t.TempDir(), "master.key")
				bring = func() {
					text, err := os.ReadFile(fileA)
					if err == nil {
						err = os.WriteFile(fileB, text, 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				bring()
			}
			a, b := open(t, k, schemas.Toolbroker, opened(t, fileA)), open(t, k, schemas.Toolbroker, opened(t, fileB))
			put(t, a, "tnt_a", "con_a")
			get(t, b, "tnt_a", "con_a")

			rotate(t, fileA, vault.Stage)
			put(t, a, "tnt_b", "con_a") // the old key seals still, so b opens it without the new file
			get(t, b, "tnt_b", "con_a")
			bring()
			rotate(t, fileA, vault.Promote)
			// a seals under the new key now; b has read neither file since, and its copy says staged.
			get(t, a, "tnt_a", "con_a") // lazily rewraps
			put(t, a, "tnt_c", "con_a")
			for _, tenant := range []id.Tenant{"tnt_a", "tnt_b", "tnt_c"} {
				get(t, b, tenant, "con_a")
			}
			if !shared {
				put(t, b, "tnt_d", "con_a") // under the old key, by an instance that was not brought the file yet
			}
			if got := rewrap(t, a, true, "tnt_a", "tnt_c"); got.Remaining != 0 || got.Tenants != 2 {
				t.Errorf("b undid what a did: %+v", got)
			}
			bring()
			if got := rewrap(t, b, false, "tnt_a", "tnt_b", "tnt_c", "tnt_d"); got.Remaining != 0 || got.Reason != "" {
				t.Errorf("%+v", got)
			}
			if _, err := vault.PruneFile(fileA, rewrap(t, a, true, "tnt_a", "tnt_b", "tnt_c", "tnt_d").Key); err != nil {
				t.Fatal(err)
			}
			get(t, a, "tnt_a", "con_a")
			get(t, b, "tnt_c", "con_a") // its copy has a key more, which nothing needs
			bring()
			get(t, b, "tnt_a", "con_a")
		})
	}
}

// Before a rewrap there is something left, after it nothing is, and then the old key can go.
func TestRewrapThenPrune(t *testing.T) {
	k := servicekit.Start(t)
	path := keyFile(t)
	v := open(t, k, schemas.Toolbroker, opened(t, path))
	tenants := []id.Tenant{"tnt_a", "tnt_b", "tnt_c", "tnt_none"}
	for _, tenant := range tenants[:3] {
		put(t, v, tenant, "con_a")
		put(t, v, tenant, "con_b")
	}
	name := rotate(t, path, vault.Replace)
	if got := rewrap(t, v, true, tenants...); got != (ask.Rewrapped{Key: name, Tenants: 3, Remaining: 3}) {
		t.Errorf("a look: %+v", got)
	}
	get(t, v, "tnt_a", "con_a") // an opening rewraps on its way
	if got := rewrap(t, v, false, tenants...); got != (ask.Rewrapped{Key: name, Tenants: 3, Keys: 2}) {
		t.Errorf("a rewrap: %+v", got)
	}
	if got := rewrap(t, v, false, tenants...); got != (ask.Rewrapped{Key: name, Tenants: 3}) {
		t.Errorf("again: %+v", got)
	}
	if n, err := vault.PruneFile(path, name); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	fresh := open(t, k, schemas.Toolbroker, opened(t, path))
	for _, tenant := range tenants[:3] {
		get(t, fresh, tenant, "con_a")
		get(t, fresh, tenant, "con_b")
	}
	// What nothing opens remains, and is named.
	other := open(t, k, schemas.Toolbroker, servicekit.NewMaster(t))
	if got := rewrap(t, other, false, tenants...); got.Remaining != 3 || got.Keys != 0 || !strings.Contains(got.Reason, "tnt_a") {
		t.Errorf("another master key: %+v", got)
	}
	get(t, fresh, "tnt_a", "con_a")
}

// Several instances rewrap at once, while secrets are put: everything opens, and nothing remains.
func TestRewrapRace(t *testing.T) {
	k := servicekit.Start(t)
	path := keyFile(t)
	var vaults []*vault.Vault
	for range 4 {
		vaults = append(vaults, open(t, k, schemas.Toolbroker, opened(t, path)))
	}
	var tenants []id.Tenant
	for i := range 6 {
		tenants = append(tenants, id.Tenant(fmt.Sprint("tnt_", i)))
		put(t, vaults[0], tenants[i], "con_a")
	}
	rotate(t, path, vault.Replace)
	var mu sync.Mutex
	total := 0
	var wait sync.WaitGroup
	for _, v := range vaults {
		wait.Go(func() {
			got, err := v.Rewrap(t.Context(), tenants, func(id.Tenant) []string { return []string{"con_a", "con_b"} }, false)
			if err != nil || got.Remaining != 0 {
				t.Errorf("%+v, %v", got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			total += got.Keys
		})
		wait.Go(func() {
			for _, tenant := range tenants {
				if _, err := v.Put(t.Context(), tenant, "con_b", vault.NewSecret(canary+"con_b")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if total > len(tenants)*len(vaults) {
		t.Errorf("%d", total)
	}
	name := rewrap(t, vaults[0], true, tenants...)
	if name.Remaining != 0 {
		t.Fatalf("%+v", name)
	}
	if _, err := vault.PruneFile(path, name.Key); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		get(t, vaults[3], tenant, "con_a")
		get(t, vaults[3], tenant, "con_b")
	}
}

// A tenant's key is renewed: new secrets are sealed under the new one at once, old ones when they are resealed, and
// all open all the time.
func TestRenew(t *testing.T) {
	k := servicekit.Start(t)
	v, other := open(t, k, schemas.Toolbroker, k.Master), open(t, k, schemas.Toolbroker, k.Master)
	if _, err := v.Renew(t.Context(), "tnt_a", nil); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("a tenant without secrets: %v", err)
	}
	for _, name := range []string{"con_a", "con_b", "con_unnamed"} {
		put(t, v, "tnt_a", name)
	}
	if got, err := v.Renew(t.Context(), "tnt_a", []string{"con_a"}); err != nil || got.Resealed != 1 || got.Remaining != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, name := range []string{"con_a", "con_b", "con_unnamed"} {
		get(t, v, "tnt_a", name)
		get(t, other, "tnt_a", name)
	}
	if got := rewrap(t, other, true, "tnt_a"); got.Remaining != 1 {
		t.Errorf("con_b is sealed under the key before: %+v", got)
	}
	put(t, other, "tnt_a", "con_b") // the next write reseals
	if got := rewrap(t, v, false, "tnt_a"); got.Remaining != 0 || got.Resealed != 0 {
		t.Errorf("%+v", got)
	}
	// Two that renew at once: one wins or both do, one after the other; nothing is lost.
	var wait sync.WaitGroup
	for range 6 {
		wait.Go(func() {
			if _, err := other.Renew(t.Context(), "tnt_a", []string{"con_a", "con_b"}); err != nil && problem.CodeOf(err) != problem.Conflict {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for _, name := range []string{"con_a", "con_b", "con_unnamed"} {
		get(t, v, "tnt_a", name)
	}
}
