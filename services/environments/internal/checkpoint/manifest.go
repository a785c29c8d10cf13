package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Manifest says what a checkpoint holds. Its JSON is what Hash is of.
type Manifest struct {
	Generation int     `json:"generation"`
	Entries    []Entry `json:"entries"`           // as they are in the archive: directories before what is in them
	Skipped    int     `json:"skipped,omitempty"` // sockets, pipes and devices, which hold nothing
}

// Entry is one file, directory or link.
type Entry struct {
	Path   string    `json:"path"` // relative to the volume
	Kind   kind      `json:"kind"`
	Mode   uint32    `json:"mode"` // permissions alone
	Time   time.Time `json:"time"` // of its last change
	Size   int64     `json:"size,omitempty"`
	SHA256 string    `json:"sha256,omitempty"`
	Link   string    `json:"link,omitempty"` // what a link says, wherever that leads
}

type kind string

const (
	directory kind = "directory"
	file      kind = "file"
	link      kind = "link"
)

// Bounds of a checkpoint.
const (
	maxEntries  = 200_000
	maxManifest = 256 << 20 // bytes
)

// Files of a checkpoint's directory.
const (
	manifestFile = "manifest.json"
	archiveFile  = "volume.tar"
)

// Files and Bytes count what is in it.
func (m Manifest) Files() (files int, bytes int64) {
	for _, e := range m.Entries {
		if e.Kind == file {
			files, bytes = files+1, bytes+e.Size
		}
	}
	return files, bytes
}

func hashOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// read reads a manifest that has to have a hash. Problems: not_found, conflict when it is another.
func read(dir, want string) (m Manifest, err error) {
	f, err := os.Open(filepath.Join(dir, manifestFile))
	if err != nil {
		return m, problem.Wrap(err, problem.NotFound, "the machine does not have that checkpoint any more")
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil || hashOf(raw) != want {
		return m, damaged("its manifest is not the one that was recorded")
	}
	return m, json.Unmarshal(raw, &m)
}

func damaged(what string) error {
	return problem.New(problem.Conflict, "the checkpoint is damaged, and the volume is as it was: %s", what)
}
