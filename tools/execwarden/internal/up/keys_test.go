package up

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// The master key is rotated while everything runs: nothing restarts, every service rewraps what it keeps, and after
// the old key is gone a delivery is verified, a provider called and the process starts again.
func TestMasterKeyIsRotated(t *testing.T) {
	w := newWorld(t)
	w.configure(grant.Never)
	agents, err := w.Agents(t.Context())
	if err != nil || len(agents) != 1 {
		t.Fatal(agents, err)
	}
	if err := w.PutAgent(t.Context(), agents[0], "sk-of-the-sample"); err != nil {
		t.Fatal(err)
	}
	told := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(told.Close)
	if _, err := w.PutTarget(t.Context(), target.Defined{Target: "tgt_hook", Type: target.Webhook, Private: []string{hostport(told.URL)}}, told.URL, ""); err != nil {
		t.Fatal(err)
	}
	n := 0
	// A run takes a secret of each service but one: the delivery is verified, the model asked, and a comment written. A
	// notice is signed with that one's.
	run := func(when string) {
		t.Helper()
		n++
		if resp := w.deliver(fmt.Sprintf("72d3162e-cc78-11e3-81ab-%012d", n)); resp.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: the delivery is answered %s", when, resp.Status)
		}
		w.endedRuns(n)
		if got := w.github.Effects(); got != n {
			t.Fatalf("%s: %d comments after %d runs", when, got, n)
		}
		if err := w.TestTarget(t.Context(), "hook"); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	run("at first")
	file := filepath.Join(w.dir, "data", "master.key")
	name, err := vault.RotateFile(file, vault.Replace)
	if err != nil {
		t.Fatal(err)
	}
	all := func(look bool) (out []client.ServiceKeys, remaining int) {
		t.Helper()
		out, err := w.AllKeys(t.Context(), look, func(client.ServiceKeys) {})
		if err != nil || len(out) != len(schemas.Keepers()) {
			t.Fatalf("%+v, %v", out, err)
		}
		for _, k := range out {
			if k.Key != name {
				t.Errorf("%s seals under %s, want %s", k.Service, k.Key, name)
			}
			remaining += k.Remaining
		}
		return out, remaining
	}
	if _, n := all(true); n != 5 { // the permit key, and one secret each of the four services
		t.Fatalf("%d are sealed under the old key", n)
	}
	run("rotated")
	if got, n := all(false); n != 0 {
		t.Fatalf("%+v", got)
	}
	instances, err := w.MasterKeys(t.Context())
	if err != nil || len(instances) != len(schemas.Keepers()) {
		t.Fatalf("%+v, %v", instances, err)
	}
	for _, k := range instances {
		if k.Key != name || k.Reason != "" || k.Instance == "" {
			t.Errorf("%+v", k)
		}
	}
	if n, err := vault.PruneFile(file, name); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	run("before the restart")
	for _, s := range schemas.Keepers() {
		if got, err := w.RenewKeys(t.Context(), s); err != nil || got.Remaining != 0 {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	run("after renewing")
	w.stop()
	w.start()
	run("after the restart")
	text, err := os.ReadFile(file)
	if err != nil || bytes.Count(text, []byte("AGE-SECRET-KEY")) != 1 {
		t.Errorf("%v", err)
	}
}
