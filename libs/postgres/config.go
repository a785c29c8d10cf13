package postgres

import (
	"os"
	"path/filepath"
	"time"
)

// Config says which Postgres to use. The zero value is a private cluster in the default directory.
type Config struct {
	// URL names a cluster that somebody else runs. When it is set, nothing is started, and the fields below do not
	// count. Defaults to empty: a private cluster.
	URL string

	// DataDir holds the private cluster. Defaults to /var/lib/execwarden/postgres for root, and to
	// execwarden/postgres in the XDG state folder (~/.local/state) for others.
	DataDir string

	// BinDir holds the programs postgres and initdb. Defaults to what Find finds, in the version that made the
	// cluster if there is one.
	BinDir string

	// RunUser is the user that the server runs as when we are root. Defaults to the owner of the cluster if there is
	// one, else to postgres, else to nobody.
	RunUser string

	// Database is created if it is not there, and named by Server.URL. Defaults to "execwarden".
	Database string

	// Settings are further server settings, as in postgresql.conf. They win over the built-in ones: turning fsync
	// off here is for tests. Defaults to none.
	Settings map[string]string

	// StartTimeout bounds the wait for a server that recovers from a crash. Defaults to one minute.
	StartTimeout time.Duration

	// NoDownload refuses to fetch binaries when the system has none. Defaults to false.
	NoDownload bool

	// Repository is the Maven repository that binaries are fetched from. Defaults to Maven Central.
	Repository string
}

func (c Config) withDefaults() Config {
	if c.DataDir == "" {
		c.DataDir = defaultDataDir()
	}
	if c.Database == "" {
		c.Database = superuser
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = time.Minute
	}
	if c.Repository == "" {
		c.Repository = "https://repo1.maven.org/maven2"
	}
	return c
}

func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/execwarden/postgres"
	}
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		// Without a home directory the path is relative to the working directory, which is then all we have.
		home, _ := os.UserHomeDir()
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "execwarden", "postgres")
}
