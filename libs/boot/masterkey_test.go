package boot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/problem"
)

func identity(t *testing.T) string {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return key.String()
}

// The key comes from a file, the environment or both; what is secret leaves the environment.
func TestMasterKeySources(t *testing.T) {
	inFile, inEnv := identity(t), identity(t)
	path := filepath.Join(t.TempDir(), "master.key")
	if err := os.WriteFile(path, []byte(inFile), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(m boot.MasterKey) (string, bool, error) {
		master, err := m.Open()
		if err != nil || master == nil {
			return "", false, err
		}
		name, err := master.Current(t.Context())
		return name, true, err
	}
	if _, some, err := open(boot.MasterKey{}); some || err != nil {
		t.Errorf("nothing is set: %t, %v", some, err)
	}
	byFile, some, err := open(boot.MasterKey{MasterKeyFile: path})
	if !some || err != nil {
		t.Fatal(err)
	}
	fromFile, err := boot.MasterKey{MasterKeyFile: path}.Open()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := fromFile.Wrap(t.Context(), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}

	t.Setenv("EXECWARDEN_MASTER_KEY", inEnv)
	m := boot.MasterKey{MasterKeyFile: path}
	if !m.Elsewhere() {
		t.Error("the environment's key is not seen")
	}
	both, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	if name, err := both.Current(t.Context()); err != nil || name == byFile {
		t.Errorf("the file seals before the environment: %s, %v", name, err)
	}
	if _, current, err := both.Unwrap(t.Context(), sealed); err != nil || current {
		t.Errorf("what the file's key sealed: %t, %v", current, err)
	}
	for _, entry := range os.Environ() {
		if strings.Contains(entry, inEnv) {
			t.Error("the key is still in the environment")
		}
	}

	t.Setenv("EXECWARDEN_MASTER_KEY", inEnv[:40])
	if _, _, err := open(boot.MasterKey{}); problem.CodeOf(err) != problem.Invalid || strings.Contains(err.Error(), inEnv[:20]) {
		t.Errorf("a damaged key: %v", err)
	}
	t.Setenv("EXECWARDEN_TRANSIT_TOKEN", "hvs.secret")
	if _, _, err := open(boot.MasterKey{}); problem.CodeOf(err) != problem.Invalid || strings.Contains(err.Error(), "hvs.") {
		t.Errorf("a token for nobody: %v", err)
	}
	if os.Getenv("EXECWARDEN_TRANSIT_TOKEN") != "" {
		t.Error("the token is still in the environment")
	}
	t.Setenv("EXECWARDEN_TRANSIT_TOKEN", "hvs.secret")
	if _, err := (boot.MasterKey{TransitURL: "https://openbao.example", TransitMount: "transit", TransitKey: "execwarden"}).Open(); err != nil {
		t.Errorf("a KMS: %v", err)
	}
	if _, _, err := open(boot.MasterKey{MasterKeyFile: filepath.Join(t.TempDir(), "none")}); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("a file that is not there: %v", err)
	}
}

// Keys are never flags: every process of the machine can read those.
func TestNoKeyIsASetting(t *testing.T) {
	for _, args := range [][]string{{"--master-key", "x"}, {"--transit-token", "x"}} {
		var p boot.Program
		if err := boot.Load("program", args, func(string) string { return "" }, &p, &strings.Builder{}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%v: %v", args, err)
		}
	}
}
