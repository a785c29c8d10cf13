package keyfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
)

func TestLoadMakesAKeyOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.key")
	made, err := keyfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := keyfile.Load(path)
	if err != nil || !made.Equal(again) {
		t.Fatalf("the second load gives another key, %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// What others may read is no secret, whoever made it so.
func TestOthersMayNotRead(t *testing.T) {
	for _, mode := range []fs.FileMode{0o604, 0o640, 0o602, 0o601, 0o660, 0o666, 0o777} {
		path := filepath.Join(t.TempDir(), "root.key")
		if _, err := keyfile.Load(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := keyfile.Load(path); problem.CodeOf(err) != problem.Invalid || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// A crash between making the .new file and renaming it leaves half a key, which is never used.
func TestTornWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.key")
	if err := os.WriteFile(path+".new", []byte("half a ke"), 0o644); err != nil {
		t.Fatal(err)
	}
	seen, err := os.Open(path + ".new") // somebody who could read it then
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	made, err := keyfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key inherits mode %v, %v", info.Mode().Perm(), err)
	}
	buf := make([]byte, 100)
	if n, _ := seen.Read(buf); string(buf[:n]) != "half a ke" {
		t.Errorf("the key was written into a file that others have open: %q", buf[:n])
	}
	if again, err := keyfile.Load(path); err != nil || !again.Equal(made) {
		t.Errorf("%v", err)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := keyfile.Read(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := keyfile.Load(filepath.Join(dir, "no", "such", "folder")); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("no folder: %v", err)
	}
	for name, text := range map[string]string{"empty": "", "no base64": "!!!!", "short": "AAAA", "long": strings.Repeat("A", 88), "two lines": "AAAA\nAAAA"} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keyfile.Load(path); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		} else if text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error tells what is in the file: %v", name, err)
		}
	}
}

func TestWriteReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	for _, text := range []string{"one", "a longer one", "2"} {
		if err := keyfile.Write(path, text); err != nil {
			t.Fatal(err)
		}
		if got, err := keyfile.Read(path); err != nil || got != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := keyfile.Write(filepath.Dir(path), "x"); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("over a folder: %v", err)
	}
}
