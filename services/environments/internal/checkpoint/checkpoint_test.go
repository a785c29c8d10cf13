package checkpoint

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

func volumeOf(t *testing.T) string {
	t.Helper()
	v := filepath.Join(t.TempDir(), "main")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(v, "src", "deep"), 0o755))
	must(os.MkdirAll(filepath.Join(v, Scratch), 0o700))
	must(os.WriteFile(filepath.Join(v, Scratch, "x"), []byte("scratch"), 0o600))
	must(os.WriteFile(filepath.Join(v, "src", "run.sh"), []byte("#!/bin/sh\n"), 0o755))
	must(os.WriteFile(filepath.Join(v, "src", "deep", strings.Repeat("long", 50)), []byte{0, 1, 2}, 0o400))
	must(os.WriteFile(filepath.Join(v, "empty"), nil, 0o644))
	must(os.Symlink("/etc/shadow", filepath.Join(v, "out")))
	must(os.Symlink("missing", filepath.Join(v, "src", "dangling")))
	must(unix.Mkfifo(filepath.Join(v, "pipe"), 0o600))
	must(os.Chtimes(filepath.Join(v, "src", "run.sh"), time.Unix(1000, 5), time.Unix(1000, 5)))
	must(os.Chmod(filepath.Join(v, "src", "deep"), 0o555))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(v, "src", "deep"), 0o755) })
	return v
}

// look lists what is in a volume, with modes, times of files, and contents.
func look(t *testing.T, volume string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(volume, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(path, volume) + " " + info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + info.ModTime().UTC().String() + " " + string(raw)
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			line += " " + to
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is brought back is what was there, but for scratch files and what is no file.
func TestRestore(t *testing.T) {
	v := volumeOf(t)
	dir := filepath.Join(t.TempDir(), "1")
	want := slices.DeleteFunc(look(t, v), func(line string) bool {
		return strings.HasPrefix(line, "/pipe") || strings.HasPrefix(line, "/"+Scratch+"/")
	})
	m, hash, err := Make(t.Context(), v, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	if files, bytes := m.Files(); files != 3 || bytes != 13 || m.Skipped != 1 {
		t.Errorf("%d files, %d bytes, %d skipped", files, bytes, m.Skipped)
	}
	for _, to := range []string{v, filepath.Join(t.TempDir(), "clone")} {
		_ = os.WriteFile(filepath.Join(v, "later"), []byte("later"), 0o644) // only where the volume is
		if _, err := Restore(t.Context(), dir, hash, to, 0, 0); err != nil {
			t.Fatal(err)
		}
		got := look(t, to)
		got[0], want[0] = "", "" // the top's own mode
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", to, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(to), Staging+"*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		_ = os.Chmod(filepath.Join(to, "src", "deep"), 0o755)
		_ = os.Remove(filepath.Join(v, "later"))
	}
}

// Whatever of a checkpoint is not as it was made, the volume stays as it is.
func TestDamagedCheckpoint(t *testing.T) {
	v := volumeOf(t)
	before := look(t, v)
	damage := map[string]func(t *testing.T, dir string, hash *string){
		"another manifest is recorded": func(_ *testing.T, _ string, hash *string) { *hash = strings.Repeat("0", 64) },
		"a byte of the archive": func(t *testing.T, dir string, _ *string) {
			edit(t, filepath.Join(dir, archiveFile), "#!/bin/sh", "#!/bin/ls")
		},
		"a byte of the manifest": func(t *testing.T, dir string, _ *string) {
			edit(t, filepath.Join(dir, manifestFile), `"mode":493`, `"mode":511`)
		},
		"a cut archive": func(t *testing.T, dir string, _ *string) {
			if err := os.Truncate(filepath.Join(dir, archiveFile), 1024); err != nil {
				t.Fatal(err)
			}
		},
		"no archive": func(_ *testing.T, dir string, _ *string) { _ = os.Remove(filepath.Join(dir, archiveFile)) },
		"a path that leads out": func(t *testing.T, dir string, hash *string) {
			var m Manifest
			raw, err := os.ReadFile(filepath.Join(dir, manifestFile))
			if err != nil || json.Unmarshal(raw, &m) != nil {
				t.Fatal(err)
			}
			m.Entries[0].Path = "../out"
			raw, _ = json.Marshal(m)
			if err := os.WriteFile(filepath.Join(dir, manifestFile), raw, 0o600); err != nil {
				t.Fatal(err)
			}
			*hash = hashOf(raw)
		},
	}
	for what, do := range damage {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "1")
			_, hash, err := Make(t.Context(), v, dir, 1)
			if err != nil {
				t.Fatal(err)
			}
			do(t, dir, &hash)
			if _, err := Restore(t.Context(), dir, hash, v, 0, 0); problem.CodeOf(err) != problem.Conflict {
				t.Errorf("%v", err)
			}
			if after := look(t, v); !slices.Equal(before, after) {
				t.Errorf("the volume changed:\n%s", strings.Join(after, "\n"))
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(v), Staging+"*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func edit(t *testing.T, path, old, new string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(raw), old) {
		t.Fatalf("%s has no %s: %v", path, old, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(raw), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is given up in the middle leaves nothing, neither of a checkpoint nor of a restore.
func TestGivenUp(t *testing.T) {
	v := volumeOf(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	dir := filepath.Join(t.TempDir(), "1")
	if _, _, err := Make(over, v, dir, 1); problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(dir + "*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	_, hash, err := Make(t.Context(), v, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(over, dir, hash, v, 0, 0); problem.CodeOf(err) != problem.TooLarge {
		t.Errorf("%v", err)
	}
	left := filepath.Join(filepath.Dir(v), Staging+"x")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	pattern := filepath.Join(filepath.Dir(v), Staging+"*")
	Sweep(pattern)
	if _, err := os.Stat(left); err != nil {
		t.Error("what another life may be at was removed")
	}
	if err := os.Chtimes(left, time.Unix(1000, 0), time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
	Sweep(pattern)
	if _, err := os.Stat(left); err == nil {
		t.Error("what a crash left is still there")
	}
}
