package vault_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

func identity(t *testing.T) string {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return key.String()
}

func parse(t *testing.T, text string) *vault.Keyring {
	t.Helper()
	m, err := vault.ParseMaster(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wrap(t *testing.T, m vault.Master, key string) []byte {
	t.Helper()
	out, err := m.Wrap(t.Context(), []byte(key))
	if err != nil || bytes.Contains(out, []byte(key)) {
		t.Fatalf("wrap: %v", err)
	}
	return out
}

// opens says whether a master opens what was wrapped, and whether it was under the current key.
func opens(t *testing.T, m vault.Master, wrapped []byte) (current, ok bool) {
	t.Helper()
	key, current, err := m.Unwrap(t.Context(), wrapped)
	if err == nil && string(key) != canary {
		t.Fatalf("it opens as %d other bytes", len(key))
	}
	if err != nil && (problem.CodeOf(err) != problem.Internal || len(key) > 0) {
		t.Fatalf("unwrap: %v", err)
	}
	return current, err == nil
}

func TestMasterFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	if _, err := vault.OpenMaster(path); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("a file that is not there: %v", err)
	}
	first, err := vault.LoadMaster(path)
	if err != nil || first == nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.Count(text, []byte("AGE-SECRET-KEY-1")) != 1 {
		t.Fatalf("%v", err)
	}
	secret := string(text[bytes.Index(text, []byte("AGE-SECRET-KEY-1")):])
	again, err := vault.LoadMaster(path)
	if err != nil {
		t.Fatal(err)
	}
	if current, ok := opens(t, again, wrap(t, first, canary)); !current || !ok {
		t.Error("the same file is another key")
	}
	if strings.Contains(fmt.Sprintf("%v %+v", first, first), strings.TrimSpace(secret)) {
		t.Error("the master key prints")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := vault.LoadMaster(path); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("a master key that others can read: %v", err)
	}
	// One that runs opens what it opened, and seals nothing.
	if _, ok := opens(t, again, wrap(t, parse(t, secret), canary)); !ok {
		t.Error("it forgot its key")
	}
	if _, err := again.Wrap(t.Context(), []byte(canary)); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("it seals although its file is open to others: %v", err)
	}
}

func TestKeyringText(t *testing.T) {
	a, b, c := identity(t), identity(t), identity(t)
	for name, text := range map[string]string{
		"one":                  a,
		"lines":                a + "\n" + b + "\n",
		"one line":             a + " " + b + "\t" + c,
		"comments":             "# created today\n" + a + " # mine\n\n#\n" + b,
		"carriage returns":     a + "\r\n" + b + "\r\n",
		"staged":               "staged " + a + "\n" + b,
		"staged on other line": "staged\n" + a + "\n" + b,
	} {
		if _, err := vault.ParseMaster(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var many []string
	for range 65 {
		many = append(many, identity(t))
	}
	for name, text := range map[string]string{
		"nothing":                "",
		"a comment":              "# " + a,
		"only staged":            "staged " + a,
		"staged nothing":         a + " staged",
		"staged twice":           "staged staged " + a + " " + b,
		"staged after an older":  a + "\nstaged " + b,
		"the same twice":         a + "\n" + b + "\n" + a,
		"damaged":                a + "\n" + b + "X",
		"a public key":           "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
		"a passphrase":           "hunter2",
		"another word":           "retired " + a,
		"too many":               strings.Join(many, "\n"),
		"a line without an end":  strings.Repeat("x", 1<<20),
		"binary":                 "\x00\xff\xfe",
		"a key with a byte more": a + "\x00",
	} {
		_, err := vault.ParseMaster(text)
		if problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		for _, secret := range []string{a[:30], b[:30], "hunter2"} {
			if strings.Contains(fmt.Sprintf("%v %+v", err, problem.DetailOf(err)), secret) {
				t.Errorf("%s: the problem shows a key", name)
			}
		}
	}
}

func TestKeyringSealsWithTheFirstAndOpensWithAll(t *testing.T) {
	a, b, c := identity(t), identity(t), identity(t)
	byA, byB := parse(t, a), parse(t, b)
	ring := parse(t, "staged "+c+"\n"+b+"\n"+a)
	for name, tc := range map[string]struct {
		wrapped     []byte
		current, ok bool
	}{
		"its own":      {wrap(t, ring, canary), true, true},
		"the current":  {wrap(t, byB, canary), true, true},
		"an earlier":   {wrap(t, byA, canary), false, true},
		"a staged one": {wrap(t, parse(t, c), canary), true, true}, // whoever sealed it is ahead; it must not be undone
		"a stranger's": {wrap(t, parse(t, identity(t)), canary), false, false},
		"a KMS's":      {[]byte("vault:v1:AAAA"), false, false},
		"nothing":      {nil, false, false},
		"half":         {wrap(t, byB, canary)[:60], false, false},
	} {
		if current, ok := opens(t, ring, tc.wrapped); current != tc.current || ok != tc.ok {
			t.Errorf("%s: current %t, opens %t", name, current, ok)
		}
	}
	if current, ok := opens(t, byB, wrap(t, ring, canary)); !current || !ok {
		t.Error("a staged key sealed something")
	}
	name := func(m vault.Master) string {
		text, err := m.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if name(ring) != name(byB) || name(ring) == name(byA) || !strings.HasPrefix(name(ring), "age:") {
		t.Errorf("named %s", name(ring))
	}
}

// A program notices its file at the next use, without a signal.
func TestKeyringFollowsItsFile(t *testing.T) {
	a, b := identity(t), identity(t)
	path := filepath.Join(t.TempDir(), "master.key")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".x", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".x", path); err != nil {
			t.Fatal(err)
		}
	}
	write(a)
	ring, err := vault.OpenMaster(path)
	if err != nil {
		t.Fatal(err)
	}
	byA, byB := wrap(t, parse(t, a), canary), wrap(t, parse(t, b), canary)
	if _, ok := opens(t, ring, byB); ok {
		t.Fatal("it opens what it does not know")
	}
	write(b + "\n" + a)
	if current, ok := opens(t, ring, byB); !ok || !current {
		t.Error("the new key is not known")
	}
	if current, ok := opens(t, ring, byA); !ok || current {
		t.Error("the old key is gone, or current")
	}
	if current, ok := opens(t, parse(t, b), wrap(t, ring, canary)); !ok || !current {
		t.Error("it seals with the old key")
	}
	for name, spoil := range map[string]func(){
		"damaged": func() { write("AGE-SECRET") },
		"gone": func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if _, ok := opens(t, ring, byA); !ok {
			t.Fatal("both keys are in the file")
		}
		spoil()
		if _, ok := opens(t, ring, byA); !ok {
			t.Errorf("%s: what was known is forgotten", name)
		}
		if _, err := ring.Wrap(t.Context(), []byte(canary)); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: it seals: %v", name, err)
		}
		if _, err := ring.Current(t.Context()); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: it says which key seals: %v", name, err)
		}
		if _, _, err := ring.Unwrap(t.Context(), wrap(t, parse(t, identity(t)), canary)); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: what it cannot open is not blamed on the file: %v", name, err)
		}
		write(b)
		if _, ok := opens(t, ring, byB); !ok {
			t.Errorf("%s: a good file is not noticed", name)
		}
		write(b + "\n" + a)
	}
}

func TestMastersTogether(t *testing.T) {
	a, b := parse(t, identity(t)), parse(t, identity(t))
	both := vault.Masters{b, a}
	if current, ok := opens(t, both, wrap(t, a, canary)); current || !ok {
		t.Error("the earlier master")
	}
	if current, ok := opens(t, b, wrap(t, both, canary)); !current || !ok {
		t.Error("the first does not seal")
	}
	if _, ok := opens(t, both, wrap(t, parse(t, identity(t)), canary)); ok {
		t.Error("a stranger's")
	}
}
