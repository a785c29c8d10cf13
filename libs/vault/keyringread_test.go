package vault_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/vault"
)

// A file that could not be read at the moment, as when a process has too many files open, is read the next time,
// although nothing about it has changed: else an instance would seal nothing until somebody touches it.
func TestKeyringReadsAgainWhatItCouldNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master.key")
	m, err := vault.LoadMaster(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := keyfile.Write(path, identity(t)); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, short := m.Wrap(t.Context(), []byte(canary))
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if short == nil {
		t.Fatal("it seals, and cannot know which key should")
	}
	if _, err := m.Wrap(t.Context(), []byte(canary)); err != nil {
		t.Errorf("the file can be read again: %v", err)
	}
}
