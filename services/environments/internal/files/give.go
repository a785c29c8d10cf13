package files

import (
	"context"
	"io"

	"github.com/execwarden/execwarden/schemas/machine"
)

// Open opens a plain file for whoever reads it in pieces. Problems: as of read_file.
func (t *Tree) Open(path string) (io.ReadCloser, error) {
	f, _, err := t.open(path)
	if err != nil {
		return nil, err // not a nil file in an interface
	}
	return f, nil
}

// Match lists the plain files that a pattern matches, and says why there may be more.
func (t *Tree) Match(ctx context.Context, pattern string) (paths []string, truncated string, err error) {
	found, err := t.glob(ctx, machine.GlobArgs{Pattern: pattern})
	if err != nil {
		return nil, "", err
	}
	entries, _ := found.(Entries) // glob gives no other
	for _, e := range entries.Entries {
		if e.Type == "file" {
			paths = append(paths, e.Path)
		}
	}
	return paths, entries.Truncated, nil
}
