package postgres

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

// repository serves what Maven Central does: a jar that holds a .txz, and its checksum.
func repository(t *testing.T, checksum func([]byte) string) *httptest.Server {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postgres", "initdb", "pg_ctl"} {
		if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	txz, err := exec.Command("tar", "-C", dir, "-cJf", "-", "bin").Output()
	if err != nil {
		t.Skipf("no tar with xz to make an archive: %v", err)
	}
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	file, err := archive.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(txz); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = w.Write([]byte(checksum(jar.Bytes())))
			return
		}
		_, _ = w.Write(jar.Bytes())
	}))
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections() // embedded-postgres uses it
	})
	return server
}

func TestFetch(t *testing.T) {
	h := &home{dir: t.TempDir()}
	maven := repository(t, func(jar []byte) string { sum := sha256.Sum256(jar); return hex.EncodeToString(sum[:]) })
	dir, err := h.fetch(t.Context(), Config{Repository: maven.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if !holdsServer(dir) || !strings.HasPrefix(dir, h.fetched()) {
		t.Errorf("fetched into %s", dir)
	}
	if left, _ := filepath.Glob(filepath.Join(h.dir, "decoy-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	maven.Close()
	again, err := h.fetch(t.Context(), Config{Repository: maven.URL}, slog.New(slog.DiscardHandler))
	if err != nil || again != dir {
		t.Errorf("the second time needs the network: %s, %v", again, err)
	}
}

func TestFetchRefusesAWrongChecksum(t *testing.T) {
	h := &home{dir: t.TempDir()}
	maven := repository(t, func([]byte) string { return strings.Repeat("0", 64) })
	_, err := h.fetch(t.Context(), Config{Repository: maven.URL}, slog.New(slog.DiscardHandler))
	if problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("a wrong checksum: %v", err)
	}
	if holdsServer(filepath.Join(h.fetched(), string(fetchedVersion), "bin")) {
		t.Error("binaries with a wrong checksum were unpacked")
	}
}

func TestNoDownload(t *testing.T) {
	t.Setenv("PATH", "")
	saved := usualPlaces
	usualPlaces = nil
	defer func() { usualPlaces = saved }()
	_, err := Start(t.Context(), Config{DataDir: setup(t), NoDownload: true}, slog.New(slog.DiscardHandler))
	if problem.CodeOf(err) != problem.NotFound || !strings.Contains(err.Error(), "apt install") {
		t.Errorf("no server and no download: %v", err)
	}
}
