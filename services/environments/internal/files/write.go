package files

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
)

// Written answers a write.
type Written struct {
	Path   string `json:"path"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	Made   bool   `json:"made"` // it was not there before
}

// Absent is an if_match that no file has.
const Absent = "absent"

// staged is a file that is written beside its place, and not there yet.
type staged struct {
	place
	path string // as asked for
	tmp  string // empty: the file is to be removed
	mode fs.FileMode
	sum  string
	size int
	made bool
}

func (t *Tree) write(a machine.WriteFileArgs) (any, error) {
	raw := []byte(a.Content)
	switch a.Encoding {
	case "", "utf-8":
	case "base64":
		var err error
		if raw, err = base64.StdEncoding.DecodeString(a.Content); err != nil {
			return nil, problem.New(problem.Invalid, "the content is no base64")
		}
	default:
		return nil, problem.New(problem.Invalid, "encoding %.20q is not utf-8 or base64", a.Encoding)
	}
	mode := fs.FileMode(0)
	if a.Mode != "" {
		m, err := strconv.ParseUint(a.Mode, 8, 32)
		if err != nil || m > 0o777 {
			return nil, problem.New(problem.Invalid, "mode %.10q is no octal number up to 0777", a.Mode)
		}
		mode = fs.FileMode(m)
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	if err := t.match(a.Path, a.IfMatch); err != nil {
		return nil, err
	}
	s, err := t.stage(a.Path, raw, mode)
	if err != nil {
		return nil, err
	}
	if err := t.commit([]staged{s}); err != nil {
		return nil, err
	}
	return Written{Path: a.Path, Bytes: s.size, SHA256: s.sum, Made: s.made}, nil
}

// match says whether a file is still the version that its writer knows.
// WriteWhole writes a file that is there as a whole, or as it was before; its directories are made.
func (t *Tree) WriteWhole(path string, raw []byte) error {
	s, err := t.stage(path, raw, 0)
	if err != nil {
		return err
	}
	return t.commit([]staged{s})
}

func (t *Tree) match(path, want string) error {
	if want == "" {
		return nil
	}
	raw, _, err := t.whole(path)
	missing := problem.CodeOf(err) == problem.NotFound
	switch {
	case want == Absent && missing:
		return nil
	case want == Absent && err == nil:
		return problem.New(problem.Conflict, "stale: %.200s is there already", path)
	case missing:
		return problem.New(problem.Conflict, "stale: %.200s is not there any more", path)
	case err != nil:
		return err
	case digest(raw) != want:
		return problem.New(problem.Conflict, "stale: %.200s changed since it was read; read it again", path)
	}
	return nil
}

// maxLinks is how many links are followed to the file that is written.
const maxLinks = 16

// stage writes what a file is to be beside its place, durably. mode 0 keeps the file's own.
func (t *Tree) stage(path string, raw []byte, mode fs.FileMode) (staged, error) {
	return t.stageBehind(path, raw, mode, maxLinks)
}

func (t *Tree) stageBehind(path string, raw []byte, mode fs.FileMode, links int) (s staged, err error) {
	p, err := t.find(path)
	if err != nil {
		return s, err
	}
	if !p.Write {
		return s, problem.New(problem.Denied, "%.200s may only be read (the machine's policy, rule roots)", path)
	}
	s = staged{place: p, path: path, mode: mode, sum: digest(raw), size: len(raw)}
	switch info, err := p.dir.Lstat(p.rel); {
	case errors.Is(err, fs.ErrNotExist):
		s.made = true
		if s.mode == 0 {
			s.mode = 0o644
		}
	case err != nil:
		return s, t.explain(err, path)
	case info.Mode()&fs.ModeSymlink != 0:
		// The file that the link leads to is what is written; the link stays. One that leads out is refused by the kernel.
		to, err := p.dir.Readlink(p.rel)
		if err != nil {
			return s, t.explain(err, path)
		}
		if filepath.IsAbs(to) || links == 0 {
			return s, outside(path)
		}
		return t.stageBehind(filepath.Join(p.Path, filepath.Dir(p.rel), to), raw, mode, links-1)
	case !info.Mode().IsRegular():
		return s, problem.New(problem.Invalid, "%.200s is no plain file", path)
	case s.mode == 0:
		s.mode = info.Mode().Perm()
	}
	if err := t.makeDirs(p, filepath.Dir(p.rel)); err != nil {
		return s, t.explain(err, path)
	}
	s.tmp = filepath.Join(filepath.Dir(p.rel), ".ew-"+strings.ToLower(rand.Text()))
	f, err := p.dir.OpenFile(s.tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return s, t.explain(err, path)
	}
	_, err = f.Write(raw)
	if t.uid != 0 {
		err = errors.Join(err, f.Chown(t.uid, t.gid))
	}
	err = errors.Join(err, f.Chmod(s.mode), f.Sync(), f.Close())
	if err != nil {
		s.undo()
		return s, t.explain(err, path)
	}
	return s, nil
}

// makeDirs makes the directories that are missing, for the user that commands run as.
func (t *Tree) makeDirs(p place, dir string) error {
	if dir == "." {
		return nil
	}
	if info, err := p.dir.Stat(dir); err == nil {
		if !info.IsDir() {
			return unix.ENOTDIR
		}
		return nil
	}
	if err := t.makeDirs(p, filepath.Dir(dir)); err != nil {
		return err
	}
	if err := p.dir.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if t.uid != 0 {
		return p.dir.Lchown(dir, t.uid, t.gid)
	}
	return nil
}

func (s staged) undo() {
	if s.tmp != "" {
		_ = s.dir.Remove(s.tmp) // what is left is a file that nothing names
	}
}

// commit puts staged files in their places: all of them, or, when one cannot be, none. A crash in between leaves some:
// the order's outcome is then unknown, and its caller looks.
func (t *Tree) commit(all []staged) error {
	var back []func()
	fail := func(err error, path string) error {
		for i := len(back) - 1; i >= 0; i-- {
			back[i]()
		}
		for _, s := range all {
			s.undo()
		}
		return t.explain(err, path)
	}
	dirs := map[*os.Root]map[string]bool{}
	for i := range all {
		s := &all[i]
		saved := ""
		if !s.made {
			saved = filepath.Join(filepath.Dir(s.rel), ".ew-"+strings.ToLower(rand.Text()))
			if s.tmp == "" {
				if err := s.dir.Rename(s.rel, saved); err != nil {
					return fail(err, s.path)
				}
			} else if err := s.dir.Link(s.rel, saved); err != nil {
				return fail(err, s.path)
			}
		}
		if s.tmp != "" {
			if err := s.dir.Rename(s.tmp, s.rel); err != nil {
				if saved != "" {
					_ = s.dir.Remove(saved) // a second name of what is in its place
				}
				return fail(err, s.path)
			}
		}
		back = append(back, func() {
			if saved != "" {
				_ = s.dir.Rename(saved, s.rel)
			} else {
				_ = s.dir.Remove(s.rel)
			}
		})
		if dirs[s.dir] == nil {
			dirs[s.dir] = map[string]bool{}
		}
		dirs[s.dir][filepath.Dir(s.rel)] = true
		if saved != "" {
			defer func() { _ = s.dir.Remove(saved) }() // not there when it was put back
		}
		s.tmp = "" // in its place
	}
	for root, names := range dirs {
		for name := range names {
			if d, err := root.Open(name); err == nil {
				_ = d.Sync() // the files themselves are synced; a file system without this keeps its own order
				d.Close()
			}
		}
	}
	return nil
}

func (t *Tree) edit(a machine.EditFileArgs) (any, error) {
	if len(a.Edits) == 0 || len(a.Edits) > 100 {
		return nil, problem.New(problem.Invalid, "give 1 to 100 edits")
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	if err := t.match(a.Path, a.IfMatch); err != nil {
		return nil, err
	}
	raw, info, err := t.whole(a.Path)
	if err != nil {
		return nil, err
	}
	text := string(raw)
	for i, e := range a.Edits {
		n := strings.Count(text, e.Old)
		switch {
		case e.Old == "":
			return nil, problem.New(problem.Invalid, "edit %d: old is empty; use write_file for a new file", i+1)
		case n == 0:
			return nil, problem.New(problem.Conflict, "edit %d: its old text is not in %.200s; nothing was changed", i+1, a.Path)
		case n > 1 && !e.All:
			return nil, problem.New(problem.Conflict, "edit %d: its old text is in %.200s %d times; give more of it, or all; nothing was changed", i+1, a.Path, n)
		case len(text)+n*(len(e.New)-len(e.Old)) > maxWhole:
			return nil, problem.New(problem.TooLarge, "the file would be over %d bytes", maxWhole)
		}
		text = strings.ReplaceAll(text, e.Old, e.New)
	}
	s, err := t.stage(a.Path, []byte(text), info.Mode().Perm())
	if err != nil {
		return nil, err
	}
	if err := t.commit([]staged{s}); err != nil {
		return nil, err
	}
	return Written{Path: a.Path, Bytes: s.size, SHA256: s.sum}, nil
}
