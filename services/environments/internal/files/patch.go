package files

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
)

// Bounds of a patch.
const (
	maxPatched = 100 // files
)

// Patched answers apply_patch.
type Patched struct {
	Applied bool          `json:"applied"`
	Files   []PatchedFile `json:"files"`
}

// PatchedFile is one file of a patch.
type PatchedFile struct {
	Path   string `json:"path"`
	Change string `json:"change"` // made, changed, removed, renamed
	From   string `json:"from,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// patch applies a unified diff, in git's form or the plain one. Every fragment has to fit exactly where it says, else
// nothing is changed.
func (t *Tree) patch(a machine.PatchArgs) (any, error) {
	list, _, err := gitdiff.Parse(strings.NewReader(a.Patch))
	switch {
	case err != nil:
		return nil, problem.New(problem.Invalid, "the patch cannot be read: %v", err)
	case len(list) == 0:
		return nil, problem.New(problem.Invalid, "the patch has no file; it is a unified diff, with --- and +++ lines")
	case len(list) > maxPatched:
		return nil, problem.New(problem.TooLarge, "the patch has %d files; the most is %d", len(list), maxPatched)
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	out := Patched{Files: []PatchedFile{}}
	var all []staged
	undo := func() {
		for _, s := range all {
			s.undo()
		}
	}
	seen := map[string]bool{}
	for _, f := range list {
		done, more, err := t.patchFile(f)
		all = append(all, more...)
		for _, s := range more {
			if at := filepath.Join(s.Path, s.rel); seen[at] {
				err = problem.New(problem.Invalid, "the patch names %.200s twice", s.path)
			} else {
				seen[at] = true
			}
		}
		if err != nil {
			undo()
			return nil, err
		}
		out.Files = append(out.Files, done)
	}
	if a.Check {
		undo()
		return out, nil
	}
	if err := t.commit(all); err != nil {
		return nil, err
	}
	out.Applied = true
	return out, nil
}

func (t *Tree) patchFile(f *gitdiff.File) (done PatchedFile, all []staged, err error) {
	if f.IsBinary {
		return done, nil, problem.New(problem.Invalid, "%.200s: binary patches are not applied; use write_file", f.NewName)
	}
	old, name := names(f)
	done = PatchedFile{Path: name, Change: "changed"}
	var before []byte
	mode := f.NewMode.Perm()
	if f.IsNew {
		done.Change = "made"
		if _, _, err := t.open(name); problem.CodeOf(err) != problem.NotFound {
			return done, nil, problem.New(problem.Conflict, "%.200s is there already, and the patch makes it; nothing was changed", name)
		}
	} else {
		var info fs.FileInfo
		if before, info, err = t.whole(old); err != nil {
			return done, nil, err
		}
		if mode == 0 {
			mode = info.Mode().Perm()
		}
	}
	var after bytes.Buffer
	if err := gitdiff.Apply(&after, bytes.NewReader(before), f); err != nil {
		return done, nil, problem.New(problem.Conflict, "the patch does not fit %.200s: %v; nothing was changed", or(name, old), err)
	}
	if after.Len() > maxWhole {
		return done, nil, problem.New(problem.TooLarge, "%.200s would be over %d bytes", name, maxWhole)
	}
	remove := func(path string) error {
		p, err := t.find(path)
		if err == nil && !p.Write {
			err = problem.New(problem.Denied, "%.200s may only be read (the machine's policy, rule roots)", path)
		}
		if err == nil {
			all = append(all, staged{place: p, path: path})
		}
		return err
	}
	if f.IsDelete {
		done.Path, done.Change = old, "removed"
		return done, all, remove(old)
	}
	s, err := t.stage(name, after.Bytes(), mode)
	if err != nil {
		return done, nil, err
	}
	all, done.SHA256 = append(all, s), s.sum
	if !f.IsNew && old != name {
		done.From = old
		if f.IsCopy {
			done.Change = "made"
			return done, all, nil
		}
		done.Change = "renamed"
		return done, all, remove(old)
	}
	return done, all, nil
}

// names are the paths before and after. A plain diff may have git's prefixes without saying that it is git's.
func names(f *gitdiff.File) (old, name string) {
	old, name = f.OldName, f.NewName
	a, hasA := strings.CutPrefix(old, "a/")
	b, hasB := strings.CutPrefix(name, "b/")
	switch {
	case hasA && hasB && a == b, hasA && name == "":
		return a, b
	case hasA && name == old: // as the parser has a plain diff's one name
		return a, a
	case hasB && (old == "" || old == name):
		return strings.TrimPrefix(old, "b/"), b
	}
	return old, name
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
