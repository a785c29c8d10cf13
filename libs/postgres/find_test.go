package postgres

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// install makes a directory that looks like a server of the version.
func install(t *testing.T, root, version string) string {
	t.Helper()
	dir := filepath.Join(root, version, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + " (Debian)'\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	root, err := os.MkdirTemp("", "find")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	saved := usualPlaces
	defer func() { usualPlaces = saved }()
	usualPlaces = []string{filepath.Join(root, "pg", "*", "bin")}
	t.Setenv("PATH", "/bin-of-nobody")

	if _, err := Find(); err == nil {
		t.Error("found a server where there is none")
	}
	old, newer := install(t, filepath.Join(root, "pg"), "9.6"), install(t, filepath.Join(root, "pg"), "15.18")
	if got := candidates(); !slices.Equal(got, []string{newer, old}) {
		t.Errorf("candidates %v", got)
	}
	if got, err := find("9"); got != old || err != nil {
		t.Errorf("version 9 is at %s, %v", got, err)
	}
	if _, err := find("18"); err == nil {
		t.Error("found a version that is not installed")
	}

	linked := install(t, filepath.Join(root, "elsewhere"), "17.1")
	path := filepath.Join(root, "path")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(linked, "postgres"), filepath.Join(path, "postgres")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path+":/bin:/usr/bin")
	if got, err := Find(); got != linked || err != nil {
		t.Errorf("PATH comes first, and links are followed: %s, %v", got, err)
	}
}
