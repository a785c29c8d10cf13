package files

import (
	"context"
	"io/fs"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/libs/problem"
)

// Stamp is what of a file changes when it does.
type Stamp struct {
	size, modified, changed int64 // nanoseconds
	inode                   uint64
}

// Snapshot stamps the plain files below a directory that a pattern matches; an empty one matches all. Directories that were
// made meanwhile are looked through like the rest. Problems: as of glob, and too_large for more than most files, or more than
// can be looked through in the time.
func (t *Tree) Snapshot(ctx context.Context, path, glob string, most int) (map[string]Stamp, error) {
	p, err := t.find(path)
	if err != nil {
		return nil, err
	}
	if glob != "" && (!doublestar.ValidatePattern(glob) || len(glob) > maxPath) {
		return nil, problem.New(problem.Invalid, "%.200q is no pattern", glob)
	}
	if info, err := p.dir.Stat(p.rel); err != nil {
		return nil, t.explain(err, path)
	} else if !info.IsDir() {
		return nil, problem.New(problem.Invalid, "%.200s is no directory", path)
	}
	out, why := map[string]Stamp{}, ""
	why, err = t.walk(ctx, p, func(at, rel string, d fs.DirEntry) error {
		if glob != "" {
			if matched, _ := doublestar.Match(glob, rel); !matched { // the pattern is valid
				return nil
			}
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return nil // it went, or is none
		}
		if len(out) == most {
			why = "there are too many files"
			return fs.SkipAll
		}
		stamp := Stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			stamp.inode, stamp.changed = st.Ino, unix.TimespecToNsec(unix.Timespec(st.Ctim))
		}
		out[t.shown(p, at)] = stamp
		return nil
	}, &why)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return nil, problem.New(problem.TooLarge, "%s; watch a directory below, or fewer files by glob (at most %d)", why, most)
	}
	return out, nil
}
