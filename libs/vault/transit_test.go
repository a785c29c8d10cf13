package vault_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

const transitToken = "hvs.CAESIJ-not-a-real-token"

// engine speaks the HTTP API of a transit secrets engine as HashiCorp Vault and OpenBao document it: the paths, the
// headers, the JSON and the form of ciphertexts. What it does with a plaintext is no encryption.
type engine struct {
	*httptest.Server

	mu       sync.Mutex
	token    string
	latest   int
	decrypts int
	break_   http.HandlerFunc // answers instead, when set
}

func startEngine(t *testing.T) *engine {
	e := &engine{token: transitToken, latest: 1}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fail := func(status int, text string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{text}})
	}
	answer := func(data map[string]any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"request_id": "7b1d", "lease_id": "", "renewable": false, "data": data, "warnings": nil})
	}
	var in struct{ Plaintext, Ciphertext string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	switch {
	case e.break_ != nil:
		e.break_(w, r)
	case r.Header.Get("X-Vault-Token") != e.token || r.Header.Get("X-Vault-Request") != "true":
		fail(403, "permission denied")
	case r.Method == "GET" && r.URL.Path == "/v1/transit/keys/execwarden":
		answer(map[string]any{"name": "execwarden", "type": "aes256-gcm96", "latest_version": e.latest, "min_decryption_version": 1})
	case r.Method == "POST" && r.URL.Path == "/v1/transit/encrypt/execwarden":
		raw, err := base64.StdEncoding.DecodeString(in.Plaintext)
		if err != nil {
			fail(400, "failed to base64-decode plaintext")
			return
		}
		answer(map[string]any{"ciphertext": fmt.Sprintf("vault:v%d:%s", e.latest, base64.StdEncoding.EncodeToString(flip(raw))), "key_version": e.latest})
	case r.Method == "POST" && r.URL.Path == "/v1/transit/decrypt/execwarden":
		e.decrypts++
		_, sealed, _ := strings.Cut(strings.TrimPrefix(in.Ciphertext, "vault:v"), ":")
		raw, err := base64.StdEncoding.DecodeString(sealed)
		if err != nil {
			fail(400, "invalid ciphertext: could not decode base64")
			return
		}
		answer(map[string]any{"plaintext": base64.StdEncoding.EncodeToString(flip(raw))})
	default:
		fail(404, "no handler for route")
	}
}

func flip(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[i] = b[i] ^ 0x5a
	}
	return out
}

func (e *engine) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *engine) master(t *testing.T) *vault.Transit {
	t.Helper()
	m, err := vault.NewTransit(vault.TransitConfig{URL: e.URL, Key: "execwarden", Token: vault.NewSecret(transitToken)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTransit(t *testing.T) {
	e := startEngine(t)
	m := e.master(t)
	first := wrap(t, m, canary)
	for range 3 {
		if current, ok := opens(t, m, first); !current || !ok {
			t.Fatal("it does not open what it sealed")
		}
	}
	if e.decrypts != 1 {
		t.Errorf("the KMS was asked %d times for one key", e.decrypts)
	}
	if name, err := m.Current(t.Context()); err != nil || name != "transit:transit/execwarden:v1" {
		t.Errorf("%q, %v", name, err)
	}
	// The KMS rotates: known once it was asked, and nothing is undone.
	e.set(func() { e.latest = 2 })
	if current, ok := opens(t, m, first); !current || !ok {
		t.Error("a version is old that nobody has heard of")
	}
	if name, err := m.Current(t.Context()); err != nil || name != "transit:transit/execwarden:v2" {
		t.Errorf("%q, %v", name, err)
	}
	if current, ok := opens(t, m, first); current || !ok {
		t.Error("an old version is current, or does not open")
	}
	if current, ok := opens(t, m, wrap(t, m, canary)); !current || !ok {
		t.Error("the new version")
	}
	// An instance that has not heard of the new version keeps what another sealed under it.
	if current, ok := opens(t, e.master(t), wrap(t, m, canary)); !current || !ok {
		t.Error("a newer version than one knows is taken for an old one")
	}
	// From a file to the KMS.
	file := parse(t, identity(t))
	both := vault.Masters{m, file}
	if current, ok := opens(t, both, wrap(t, file, canary)); current || !ok {
		t.Error("what the file's key sealed")
	}
	if current, ok := opens(t, m, wrap(t, both, canary)); !current || !ok {
		t.Error("the KMS does not seal")
	}
	if _, ok := opens(t, m, wrap(t, file, canary)); ok {
		t.Error("the KMS opens what the file's key sealed")
	}
}

// A renewed token in the file is used at once.
func TestTransitTokenFile(t *testing.T) {
	e := startEngine(t)
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("hvs.old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := vault.NewTransit(vault.TransitConfig{URL: e.URL, Key: "execwarden", TokenFile: path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Wrap(t.Context(), []byte(canary)); problem.CodeOf(err) != problem.Unavailable || strings.Contains(err.Error(), "hvs.") {
		t.Errorf("an old token: %v", err)
	}
	if err := os.WriteFile(path, []byte(transitToken), 0o600); err != nil {
		t.Fatal(err)
	}
	wrap(t, m, canary)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Wrap(t.Context(), []byte(canary)); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("a token that others can read: %v", err)
	}
}

func TestTransitConfig(t *testing.T) {
	good := vault.TransitConfig{URL: "https://openbao.example:8200", Key: "execwarden", Token: vault.NewSecret("t")}
	for name, change := range map[string]func(*vault.TransitConfig){
		"as it is":           func(*vault.TransitConfig) {},
		"a nested mount":     func(c *vault.TransitConfig) { c.Mount = "teams/agents" },
		"an agent beside us": func(c *vault.TransitConfig) { c.URL = "http://127.0.0.1:8100" },
		"the same, by IPv6":  func(c *vault.TransitConfig) { c.URL = "http://[::1]:8100/" },
	} {
		c := good
		change(&c)
		if _, err := vault.NewTransit(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*vault.TransitConfig){
		"in the clear":           func(c *vault.TransitConfig) { c.URL = "http://openbao.example:8200" },
		"looks like loopback":    func(c *vault.TransitConfig) { c.URL = "http://127.0.0.1.example:8200" },
		"a file":                 func(c *vault.TransitConfig) { c.URL = "file:///etc/passwd" },
		"credentials":            func(c *vault.TransitConfig) { c.URL = "https://u:hunter2@openbao.example" },
		"a path":                 func(c *vault.TransitConfig) { c.URL += "/v1/sys" },
		"a query":                func(c *vault.TransitConfig) { c.URL += "?a=b" },
		"no URL":                 func(c *vault.TransitConfig) { c.URL = "" },
		"a key that is a path":   func(c *vault.TransitConfig) { c.Key = "../../sys/seal" },
		"no key":                 func(c *vault.TransitConfig) { c.Key = "" },
		"a mount that climbs":    func(c *vault.TransitConfig) { c.Mount = "../sys" },
		"a mount with an escape": func(c *vault.TransitConfig) { c.Mount = "a%2f.." },
		"no token":               func(c *vault.TransitConfig) { c.Token = vault.Secret{} },
		"two tokens":             func(c *vault.TransitConfig) { c.TokenFile = "/t" },
	} {
		c := good
		change(&c)
		if _, err := vault.NewTransit(c); problem.CodeOf(err) != problem.Invalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A KMS that fails or lies is a problem of its own, and nothing is taken for sealed or opened.
func TestTransitHostile(t *testing.T) {
	e := startEngine(t)
	sealed := wrap(t, e.master(t), canary)
	elsewhere := false
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere = true }))
	defer thief.Close()
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   problem.Code
	}{
		"sealed":               {text(503, `{"errors":["Vault is sealed"]}`), problem.Unavailable},
		"busy":                 {text(429, ``), problem.Unavailable},
		"a policy":             {text(403, `{"errors":["1 error occurred:\n\t* permission denied\n\n"]}`), problem.Unavailable},
		"a version taken away": {text(400, `{"errors":["ciphertext or signature version is disallowed by policy (too old)"]}`), problem.Internal},
		"no JSON":              {text(200, `<html>`), problem.Internal},
		"no data":              {text(200, `{}`), problem.Internal},
		"empty data":           {text(200, `{"data":{}}`), problem.Internal},
		"a number":             {text(200, `{"data":{"plaintext":7,"ciphertext":7,"latest_version":"x"}}`), problem.Internal},
		"not in base64":        {text(200, `{"data":{"plaintext":"???","ciphertext":"plain"}}`), problem.Internal},
		"no version":           {text(200, `{"data":{"plaintext":"","ciphertext":"vault:v0:AAAA","latest_version":0}}`), problem.Internal},
		"too much":             {text(200, `{"data":{"plaintext":"`+strings.Repeat("A", 300<<10)+`"}}`), problem.Internal},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
		}, problem.Internal},
		"hanging up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, problem.Unavailable},
	} {
		e.set(func() { e.break_ = tc.answer })
		m := e.master(t)
		_, wrapErr := m.Wrap(t.Context(), []byte(canary))
		key, _, unwrapErr := m.Unwrap(t.Context(), sealed)
		_, currentErr := m.Current(t.Context())
		for what, err := range map[string]error{"wrap": wrapErr, "unwrap": unwrapErr, "current": currentErr} {
			if problem.CodeOf(err) != tc.want || strings.Contains(fmt.Sprint(err), canary) || strings.Contains(fmt.Sprint(err), transitToken) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		if len(key) > 0 {
			t.Errorf("%s: it opened", name)
		}
	}
	if elsewhere {
		t.Error("the token followed a redirect")
	}
	e.Close()
	if _, _, err := e.master(t).Unwrap(t.Context(), sealed); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("nobody there: %v", err)
	}
}
