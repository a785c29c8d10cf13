package manifest

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/grant"
)

// Bounds of what is read.
const (
	maxFile  = 256 << 10 // bytes
	maxFiles = 500
)

// Set is everything that some files ask for, in the order in which it is applied.
type Set []Resource

// OneGrant gives the set's one grant, if it is its one document.
func (s Set) OneGrant() (grant.Created, bool) {
	if len(s) != 1 {
		return grant.Created{}, false
	}
	g, ok := s[0].Want.(grant.Created)
	return g, ok
}

// Load reads files, and the .yaml and .yml files of directories (not of those below them), and checks them.
// getenv finds the secrets that are in the environment. Problems: invalid, naming file and line of each fault.
func Load(paths []string, getenv func(string) string) (Set, error) {
	files, err := find(paths)
	if err != nil {
		return nil, err
	}
	var set Set
	var wrong faults
	for _, file := range files {
		raw, err := readAtMost(file, maxFile)
		if err != nil {
			return nil, err
		}
		set = append(set, parse(file, raw, getenv, &wrong)...)
	}
	seen := map[Key]Where{}
	for _, r := range set {
		if before, ok := seen[r.Key]; ok {
			wrong.add(r.Where, "%s is at %s already", r.Key, before)
		}
		seen[r.Key] = r.Where
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(set, func(a, b Resource) int {
		return slices.Index(Kinds(), a.Kind) - slices.Index(Kinds(), b.Kind)
	})
	return set, nil
}

func find(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read: %v", path, reason(err))
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read: %v", path, reason(err))
		}
		before := len(files)
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if !e.IsDir() && (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == before {
			return nil, problem.New(problem.Invalid, "directory %s has no .yaml or .yml file", path)
		}
	}
	if len(files) > maxFiles {
		return nil, problem.New(problem.TooLarge, "%d files are more than the %d that are applied at once", len(files), maxFiles)
	}
	return files, nil
}

// readAtMost reads a regular file. A pipe or device would never end, or not be the same twice.
func readAtMost(file string, most int) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read: %v", file, reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, problem.New(problem.Invalid, "%s is not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read: %v", file, reason(err))
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%s cannot be read: %v", file, reason(err))
	}
	if len(raw) > most {
		return nil, problem.New(problem.TooLarge, "%s is over %d bytes", file, most)
	}
	return raw, nil
}

// reason is an error of the operating system without the path, which stands before it.
func reason(err error) error {
	if path, ok := err.(*os.PathError); ok {
		return path.Err
	}
	return err
}
