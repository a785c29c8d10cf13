package vault_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goccy/go-yaml"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "ghp_canary_of_the_test"

func open(t *testing.T, k *servicekit.Kit, s schemas.Service, m vault.Master) *vault.Vault {
	t.Helper()
	v, err := vault.Open(t.Context(), k.Conn(t, string(s)), m)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSealAndOpen(t *testing.T) {
	k := servicekit.Start(t)
	v := open(t, k, schemas.Toolbroker, k.Master)
	ctx := t.Context()
	for name, text := range map[string]string{"con_a": canary, "con_b": "\x00\xff binary\n", "con_c": strings.Repeat("x", vault.MaxSecret)} {
		print, err := v.Put(ctx, "tnt_a", name, vault.NewSecret(text))
		if err != nil || print != vault.Fingerprint(vault.NewSecret(text)) || len(print) != 12 {
			t.Fatalf("%s: %q, %v", name, print, err)
		}
		got, err := v.Get(ctx, "tnt_a", name)
		if err != nil || got.Reveal() != text {
			t.Errorf("%s comes back as %d bytes, %v", name, len(got.Reveal()), err)
		}
	}
	for _, text := range []string{"", strings.Repeat("x", vault.MaxSecret+1)} {
		if _, err := v.Put(ctx, "tnt_a", "con_d", vault.NewSecret(text)); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
	if _, err := v.Put(ctx, "tnt_a", "con_a", vault.NewSecret("another")); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Get(ctx, "tnt_a", "con_a"); err != nil || got.Reveal() != "another" {
		t.Errorf("after a change: %v", err)
	}
	for _, at := range []struct {
		tenant id.Tenant
		name   string
	}{{"tnt_b", "con_a"}, {"tnt_a", "con_x"}} {
		if got, err := v.Get(ctx, at.tenant, at.name); problem.CodeOf(err) != problem.NotFound || !got.Empty() {
			t.Errorf("%v: %v", at, err)
		}
	}
	if _, err := v.Put(ctx, "tnt_a", "con_gone", vault.NewSecret("gone")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to forget
		if err := v.Delete(ctx, "tnt_a", "con_gone", 0); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Get(ctx, "tnt_a", "con_gone"); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("a secret that was forgotten: %v", err)
		}
	}
	// Nothing on the disk of the bus is readable.
	kv, err := k.Boot.JS.KeyValue(ctx, "secrets")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kv.Keys(ctx)
	if err != nil || len(keys) != 4 { // three secrets and the tenant's key
		t.Fatalf("%v, %v", keys, err)
	}
	for _, key := range keys {
		entry, err := kv.Get(ctx, key)
		if err != nil || bytes.Contains(entry.Value(), []byte(canary)) || bytes.Contains(entry.Value(), []byte("AGE-SECRET-KEY")) {
			t.Errorf("%s is readable, %v", key, err)
		}
	}
}

// Each service has its own part: by subject, and by key.
func TestOtherServicesPart(t *testing.T) {
	k := servicekit.Start(t)
	broker, loop := open(t, k, schemas.Toolbroker, k.Master), open(t, k, schemas.Agentloop, k.Master)
	if _, err := broker.Put(t.Context(), "tnt_a", "con_a", vault.NewSecret(canary)); err != nil {
		t.Fatal(err)
	}
	if got, err := loop.Get(t.Context(), "tnt_a", "con_a"); problem.CodeOf(err) != problem.NotFound || !got.Empty() {
		t.Errorf("agentloop finds the broker's secret: %v", err)
	}
	// Copied into its part by somebody who may write everywhere, it does not open: the purpose's key is another.
	kv, err := k.Boot.JS.KeyValue(t.Context(), "secrets")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loop.Put(t.Context(), "tnt_a", "own", vault.NewSecret("x")); err != nil {
		t.Fatal(err)
	}
	entry, err := kv.Get(t.Context(), "toolbroker.tnt_a.s-con_a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "agentloop.tnt_a.s-con_a", entry.Value()); err != nil {
		t.Fatal(err)
	}
	if got, err := loop.Get(t.Context(), "tnt_a", "con_a"); problem.CodeOf(err) != problem.Internal || !got.Empty() {
		t.Errorf("a secret of another purpose opens: %v", err)
	}
	if _, err := vault.Open(t.Context(), k.Conn(t, string(schemas.Ledger)), k.Master); err == nil {
		t.Error("the ledger opens the secrets")
	}
}

func TestAnotherMasterKey(t *testing.T) {
	k := servicekit.Start(t)
	if _, err := open(t, k, schemas.Toolbroker, k.Master).Put(t.Context(), "tnt_a", "con_a", vault.NewSecret(canary)); err != nil {
		t.Fatal(err)
	}
	other := open(t, k, schemas.Toolbroker, servicekit.NewMaster(t))
	if got, err := other.Get(t.Context(), "tnt_a", "con_a"); problem.CodeOf(err) != problem.Internal || !got.Empty() || strings.Contains(err.Error(), canary) {
		t.Errorf("another master key: %v", err)
	}
	// It may not put a secret either: nobody with the right master key could open it.
	if _, err := other.Put(t.Context(), "tnt_a", "con_b", vault.NewSecret("x")); problem.CodeOf(err) != problem.Internal {
		t.Errorf("another master key seals: %v", err)
	}
}

// Of instances that make the tenant's first key at once, one wins and all use it.
func TestFirstWriters(t *testing.T) {
	k := servicekit.Start(t)
	var vaults []*vault.Vault
	for range 8 {
		vaults = append(vaults, open(t, k, schemas.Toolbroker, k.Master))
	}
	var wait sync.WaitGroup
	for i, v := range vaults {
		wait.Go(func() {
			if _, err := v.Put(t.Context(), "tnt_a", fmt.Sprint("con_", i), vault.NewSecret(fmt.Sprint("secret ", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	for i := range vaults {
		got, err := vaults[0].Get(t.Context(), "tnt_a", fmt.Sprint("con_", i))
		if err != nil || got.Reveal() != fmt.Sprint("secret ", i) {
			t.Errorf("secret %d: %v", i, err)
		}
	}
}

func TestSecretNeverPrints(t *testing.T) {
	s := vault.NewSecret(canary)
	type exported struct{ S vault.Secret }
	type unexported struct{ s vault.Secret }
	for _, v := range []any{s, &s, exported{s}, &exported{s}, unexported{s}, &unexported{s}, []vault.Secret{s}, map[string]vault.Secret{"k": s}, map[string]unexported{"k": {s}}, any(s)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%f", "%c", "%T"} {
			text := fmt.Sprintf(verb, v)
			if strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary)) || strings.Contains(text, fmt.Sprintf("%X", canary)) {
				t.Errorf("%s of %T prints %s", verb, v, text)
			}
		}
		raw, err := json.Marshal(v)
		if err != nil || bytes.Contains(raw, []byte(canary)) {
			t.Errorf("JSON of %T: %s, %v", v, raw, err)
		}
		raw, err = yaml.Marshal(v)
		if err != nil || bytes.Contains(raw, []byte(canary)) {
			t.Errorf("YAML of %T: %s, %v", v, raw, err)
		}
		for _, handler := range []func(*bytes.Buffer) slog.Handler{
			func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var out bytes.Buffer
			slog.New(handler(&out)).Info("x", "secret", v, slog.Group("g", "s", v))
			if strings.Contains(out.String(), canary) {
				t.Errorf("a log of %T: %s", v, &out)
			}
		}
	}
	if got := fmt.Sprint(fmt.Errorf("while using %v: %w", s, problem.New(problem.Denied, "%s", s))); strings.Contains(got, canary) {
		t.Error(got)
	}
	if s.Reveal() != canary || s.Empty() || !(vault.Secret{}).Empty() || (vault.Secret{}).Reveal() != "" || !vault.NewSecret("").Empty() {
		t.Error("Reveal and Empty")
	}
}

// Of those who change the same secret at once, one does.
func TestSwap(t *testing.T) {
	k := servicekit.Start(t)
	v := open(t, k, schemas.Toolbroker, k.Master)
	ctx := t.Context()
	secret := func(text string) vault.Secret { return vault.NewSecret(text) }
	first, err := v.Swap(ctx, "tnt_a", "oauth.con_a", secret("one"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Swap(ctx, "tnt_a", "oauth.con_a", secret("other"), 0); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a second first: %v", err)
	}
	var racers sync.WaitGroup
	var won atomic.Int64
	for i := range 8 {
		racers.Go(func() {
			switch _, err := v.Swap(ctx, "tnt_a", "oauth.con_a", secret(fmt.Sprint("racer ", i)), first); problem.CodeOf(err) {
			case "":
				won.Add(1)
			case problem.Conflict:
			default:
				t.Error(err)
			}
		})
	}
	racers.Wait()
	got, second, err := v.Read(ctx, "tnt_a", "oauth.con_a")
	if err != nil || won.Load() != 1 || !strings.HasPrefix(got.Reveal(), "racer ") || second == first {
		t.Errorf("%d won, %v", won.Load(), err)
	}
	if err := v.Delete(ctx, "tnt_a", "oauth.con_a", first); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a deletion of what is not there any more: %v", err)
	}
	if err := v.Delete(ctx, "tnt_a", "oauth.con_a", second); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Read(ctx, "tnt_a", "oauth.con_a"); problem.CodeOf(err) != problem.NotFound {
		t.Errorf("after its deletion: %v", err)
	}
	if _, err := v.Swap(ctx, "tnt_a", "oauth.con_a", secret("late"), second); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a change of what was deleted: %v", err)
	}
	for range 2 { // none is no error
		if err := v.Delete(ctx, "tnt_a", "oauth.con_a", 0); err != nil {
			t.Error(err)
		}
	}
	if _, err := v.Swap(ctx, "tnt_a", "oauth.con_a", secret("anew"), 0); err != nil {
		t.Errorf("made anew after its deletion: %v", err)
	}
}
