package postgres

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"

	"github.com/execwarden/execwarden/libs/problem"
)

// fetchedVersion is what is fetched for a new cluster.
const fetchedVersion = embedded.V17

// fetchedVersions are those that can be fetched for a cluster that exists already.
var fetchedVersions = map[string]embedded.PostgresVersion{
	"14": embedded.V14, "15": embedded.V15, "16": embedded.V16, "17": embedded.V17, "18": embedded.V18,
}

// fetch downloads a server for a system that has none, into the home.
//
// embedded-postgres can only start a database of its own: on a TCP port, with a password, and not as root. We want
// its binaries alone, so it is given a decoy of a data directory: a version file and nothing else. It downloads,
// checks the SHA-256 that the repository publishes, unpacks, skips initdb, and then fails to start. Whether the
// binaries are there is what counts.
func (h *home) fetch(ctx context.Context, cfg Config, log *slog.Logger) (string, error) {
	version := fetchedVersion
	if major := h.major(); major != "" {
		known, ok := fetchedVersions[major]
		if !ok {
			return "", problem.New(problem.NotFound, "the cluster was made by PostgreSQL %s, which can neither be found nor fetched: install it", major)
		}
		version = known
	}
	dir := filepath.Join(h.fetched(), string(version))
	binDir := filepath.Join(dir, "bin")
	if holdsServer(binDir) {
		return binDir, nil
	}
	major, _, _ := strings.Cut(string(version), ".")
	decoy, err := os.MkdirTemp(h.dir, "decoy-")
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "cannot write to the data directory %s", h.dir)
	}
	if err := os.WriteFile(filepath.Join(decoy, "PG_VERSION"), []byte(major+"\n"), 0o600); err != nil {
		return "", problem.Wrap(err, problem.Invalid, "cannot write to the data directory %s", h.dir)
	}
	log.InfoContext(ctx, "no PostgreSQL is installed: downloading it", "version", string(version), "from", cfg.Repository)
	done := make(chan error, 1)
	go func() {
		// It takes no context. When ours ends first, the download ends by itself, with nobody waiting for it.
		err := embedded.NewDatabase(embedded.DefaultConfig().
			Version(version).
			BinaryRepositoryURL(cfg.Repository).
			CachePath(h.fetched()).
			BinariesPath(dir).
			RuntimePath(filepath.Join(decoy, "runtime")).
			DataPath(decoy).
			Port(0). // it insists that its port is free; any port is
			Logger(io.Discard)).Start()
		_ = os.RemoveAll(decoy) // an empty directory too many is no reason to fail
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if !holdsServer(binDir) {
		return "", problem.Wrap(err, problem.Unavailable,
			"no PostgreSQL server is installed, and it could not be downloaded from %s: install it (Debian, Ubuntu: apt install postgresql) or name a running one by its URL", cfg.Repository)
	}
	return binDir, nil
}
