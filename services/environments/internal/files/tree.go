package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// Root is a directory that the tools see.
type Root struct {
	Path  string
	Write bool
}

// Tree is what the tools of one attachment see. The first root is the volume, which paths are relative to.
type Tree struct {
	roots    []opened
	uid, gid int // of what is made; zero: this process's own

	writing sync.Mutex // if_match is looked at and acted on by one
}

type opened struct {
	Root
	dir *os.Root
}

// Open opens the roots. What is not there is a problem of the machine's policy, and not passed over.
func Open(roots []Root, uid, gid int) (*Tree, error) {
	t := &Tree{uid: uid, gid: gid}
	for _, r := range roots {
		dir, err := os.OpenRoot(r.Path)
		if err != nil {
			t.Close()
			return nil, problem.Wrap(err, problem.Unavailable, "the directory %s that the machine exposes cannot be opened", r.Path)
		}
		t.roots = append(t.roots, opened{r, dir})
	}
	return t, nil
}

// Close lets go of the roots.
func (t *Tree) Close() {
	for _, r := range t.roots {
		_ = r.dir.Close() // it was only read from
	}
}

// maxPath is the longest path, in bytes.
const maxPath = 4 << 10

// place is a path below its root.
type place struct {
	opened
	rel string
}

// find resolves a path to its root by its words alone; links are the kernel's to follow, inside the root.
func (t *Tree) find(path string) (place, error) {
	if len(path) > maxPath || strings.ContainsRune(path, 0) {
		return place{}, problem.New(problem.Invalid, "the path is too long, or holds a zero byte")
	}
	full := path
	if !filepath.IsAbs(path) {
		full = filepath.Join(t.roots[0].Path, path)
		if full != t.roots[0].Path && !strings.HasPrefix(full, t.roots[0].Path+"/") {
			return place{}, outside(path)
		}
	}
	full = filepath.Clean(full)
	best := -1
	for i, r := range t.roots {
		if (full == r.Path || strings.HasPrefix(full, strings.TrimSuffix(r.Path, "/")+"/")) && (best < 0 || len(r.Path) > len(t.roots[best].Path)) {
			best = i
		}
	}
	if best < 0 {
		return place{}, outside(path)
	}
	rel, err := filepath.Rel(t.roots[best].Path, full)
	return place{t.roots[best], rel}, err
}

func outside(path string) error {
	return problem.New(problem.Denied, "%.200s is outside the volume and the directories that the machine exposes (the machine's policy, rule roots)", path)
}

// Dir gives the absolute path of a directory that commands may begin in.
func (t *Tree) Dir(path string) (string, error) {
	p, err := t.find(path)
	if err != nil {
		return "", err
	}
	info, err := p.dir.Stat(p.rel)
	if err != nil {
		return "", t.explain(err, path)
	}
	if !info.IsDir() {
		return "", problem.New(problem.Invalid, "%.200s is no directory", path)
	}
	return filepath.Join(p.Path, p.rel), nil
}

// explain says what is wrong with a path, in words that lead on.
func (t *Tree) explain(err error, path string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return problem.Wrap(err, problem.NotFound, "there is no %.200s", path)
	case errors.Is(err, fs.ErrPermission):
		return problem.Wrap(err, problem.Denied, "%.200s may not be opened (the machine's permissions)", path)
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return problem.Wrap(err, problem.Invalid, "%.200s: a directory is where a file should be, or the other way", path)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem.Wrap(err, problem.Unavailable, "the machine's disk is full")
	case strings.Contains(err.Error(), "escapes"): // os.Root has no error value for it
		return outside(path)
	}
	return problem.Wrap(err, problem.Invalid, "%.200s: %v", path, plain(err))
}

func plain(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// open opens a plain file to read. Opening does not wait, whatever it is: a pipe, a device or a directory is refused.
func (t *Tree) open(path string) (*os.File, fs.FileInfo, error) {
	p, err := t.find(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := p.dir.OpenFile(p.rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, t.explain(err, path)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, nil, problem.New(problem.Invalid, "%.200s is no plain file", path)
	}
	return f, info, nil
}

// maxWhole is the largest file that is read as a whole: to be edited, patched or looked through.
const maxWhole = 8 << 20

// whole reads a file.
func (t *Tree) whole(path string) ([]byte, fs.FileInfo, error) {
	f, info, err := t.open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxWhole+1))
	if err != nil {
		return nil, nil, t.explain(err, path)
	}
	if len(raw) > maxWhole {
		return nil, nil, problem.New(problem.TooLarge, "%.200s is over %d bytes", path, maxWhole)
	}
	return raw, info, nil
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
