package files

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
)

// Bounds of looking through directories. What is left out is said.
const (
	maxListed  = 2000
	maxVisited = 200_000
	lookFor    = 20 * time.Second
	maxDepth   = 5
	maxMatches = 1000
	maxLine    = 400 // bytes of a line that are shown
	sniffed    = 8 << 10
)

// Entry is one name of a directory.
type Entry struct {
	Path string `json:"path"`
	Type string `json:"type"` // file, dir, link, other
	Size int64  `json:"size,omitempty"`
	To   string `json:"to,omitempty"` // of a link
}

// Entries answers list and glob.
type Entries struct {
	Entries   []Entry `json:"entries"`
	Truncated string  `json:"truncated,omitempty"` // why there may be more
}

// budget bounds one look.
type budget struct {
	ctx     context.Context
	until   time.Time
	visited int
}

var errSpent = errors.New("spent")

func newBudget(ctx context.Context) *budget { return &budget{ctx: ctx, until: time.Now().Add(lookFor)} }

func (b *budget) spend() error {
	b.visited++
	if b.visited > maxVisited || b.ctx.Err() != nil || time.Now().After(b.until) {
		return errSpent
	}
	return nil
}

func (t *Tree) list(ctx context.Context, a machine.ListArgs) (any, error) {
	if a.Depth == 0 {
		a.Depth = 1
	}
	if a.Depth < 1 || a.Depth > maxDepth {
		return nil, problem.New(problem.Invalid, "depth is outside 1 to %d", maxDepth)
	}
	p, err := t.find(a.Path)
	if err != nil {
		return nil, err
	}
	if info, err := p.dir.Stat(p.rel); err != nil {
		return nil, t.explain(err, a.Path)
	} else if !info.IsDir() {
		return nil, problem.New(problem.Invalid, "%.200s is no directory", a.Path)
	}
	out := Entries{Entries: []Entry{}}
	budget := newBudget(ctx)
	err = fs.WalkDir(p.dir.FS(), filepath.ToSlash(p.rel), func(at string, d fs.DirEntry, err error) error {
		if spent := budget.spend(); spent != nil {
			return spent
		}
		if at == filepath.ToSlash(p.rel) {
			return err
		}
		if len(out.Entries) == maxListed {
			out.Truncated = "there are more than are listed; list a directory below"
			return fs.SkipAll
		}
		if !hidden(d.Name()) {
			out.Entries = append(out.Entries, t.entry(p, at, d))
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(at, filepath.ToSlash(p.rel)), "/")
		if d.IsDir() && (hidden(d.Name()) || strings.Count(rel, "/")+1 >= a.Depth || err != nil) {
			return fs.SkipDir
		}
		return nil
	})
	if errors.Is(err, errSpent) {
		out.Truncated, err = "there was more than could be looked through in the time", nil
	}
	if err != nil {
		return nil, t.explain(err, a.Path)
	}
	return out, nil
}

// hidden names are the machine's own: the directory for what commands keep for a moment, and files that are being written.
func hidden(name string) bool { return name == ".tmp" || strings.HasPrefix(name, ".ew-") }

func (t *Tree) entry(p place, at string, d fs.DirEntry) Entry {
	e := Entry{Path: t.shown(p, at), Type: "other"}
	switch {
	case d.IsDir():
		e.Type = "dir"
	case d.Type()&fs.ModeSymlink != 0:
		e.Type = "link"
		e.To, _ = p.dir.Readlink(filepath.FromSlash(at)) // one that changed meanwhile leads nowhere known
	case d.Type().IsRegular():
		e.Type = "file"
		if info, err := d.Info(); err == nil {
			e.Size = info.Size()
		}
	}
	return e
}

// shown is a path as it is asked for: relative to the volume, absolute elsewhere.
func (t *Tree) shown(p place, at string) string {
	if p.Path == t.roots[0].Path {
		return at
	}
	return path.Join(p.Path, at)
}

func (t *Tree) glob(ctx context.Context, a machine.GlobArgs) (any, error) {
	p, err := t.find(a.Path)
	if err != nil {
		return nil, err
	}
	if !doublestar.ValidatePattern(a.Pattern) || a.Pattern == "" || len(a.Pattern) > maxPath {
		return nil, problem.New(problem.Invalid, "%.200q is no pattern", a.Pattern)
	}
	out := Entries{Entries: []Entry{}}
	out.Truncated, err = t.walk(ctx, p, func(at, rel string, d fs.DirEntry) error {
		if matched, _ := doublestar.Match(a.Pattern, rel); !matched { // the pattern is valid
			return nil
		}
		if len(out.Entries) == maxListed {
			out.Truncated = "there are more than are listed; narrow the pattern"
			return fs.SkipAll
		}
		out.Entries = append(out.Entries, t.entry(p, at, d))
		return nil
	}, &out.Truncated)
	return out, err
}

// walk goes through everything below a place, but for .git and what is the machine's own. Links are not followed.
func (t *Tree) walk(ctx context.Context, p place, each func(at, rel string, d fs.DirEntry) error, truncated *string) (string, error) {
	top := filepath.ToSlash(p.rel)
	budget := newBudget(ctx)
	err := fs.WalkDir(p.dir.FS(), top, func(at string, d fs.DirEntry, err error) error {
		switch {
		case at == top:
			return err
		case budget.spend() != nil:
			return errSpent
		case err != nil:
			return nil // what may not be read is passed over, as find does
		case d.IsDir() && (d.Name() == ".git" || hidden(d.Name())):
			return fs.SkipDir
		case hidden(d.Name()):
			return nil
		}
		rel := at
		if top != "." {
			rel = strings.TrimPrefix(at, top+"/")
		}
		return each(at, rel, d)
	})
	if errors.Is(err, errSpent) {
		return "there was more than could be looked through in the time", nil
	}
	if err != nil {
		return "", t.explain(err, p.rel)
	}
	return *truncated, nil
}

// Match is one line that matches.
type Match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// Matches answers grep.
type Matches struct {
	Matches   []Match `json:"matches"`
	Skipped   int     `json:"skipped,omitempty"` // files that are too large or may not be read
	Truncated string  `json:"truncated,omitempty"`
}

func (t *Tree) grep(ctx context.Context, a machine.GrepArgs) (any, error) {
	if a.Max == 0 {
		a.Max = 100
	}
	pattern, err := regexp.Compile(a.Pattern)
	switch {
	case err != nil || a.Pattern == "" || len(a.Pattern) > maxPath:
		return nil, problem.New(problem.Invalid, "%.200q is no regular expression (RE2)", a.Pattern)
	case a.Max < 1 || a.Max > maxMatches:
		return nil, problem.New(problem.Invalid, "max_matches is outside 1 to %d", maxMatches)
	case a.Glob != "" && !doublestar.ValidatePattern(a.Glob):
		return nil, problem.New(problem.Invalid, "%.200q is no pattern", a.Glob)
	}
	p, err := t.find(a.Path)
	if err != nil {
		return nil, err
	}
	out := Matches{Matches: []Match{}}
	look := func(at string) error {
		raw, _, err := t.whole(filepath.Join(p.Path, filepath.FromSlash(at)))
		if err != nil {
			out.Skipped++
			return nil
		}
		if bytes.IndexByte(raw[:min(len(raw), sniffed)], 0) >= 0 {
			return nil // no text
		}
		n := 0
		for line := range bytes.Lines(raw) {
			n++
			if !pattern.Match(bytes.TrimRight(line, "\r\n")) {
				continue
			}
			if len(out.Matches) == a.Max {
				out.Truncated = "there are more matches; narrow the pattern, or raise max_matches"
				return fs.SkipAll
			}
			out.Matches = append(out.Matches, Match{t.shown(p, at), n, clip(line)})
		}
		return nil
	}
	if info, err := p.dir.Stat(p.rel); err != nil {
		return nil, t.explain(err, a.Path)
	} else if info.Mode().IsRegular() {
		_ = look(filepath.ToSlash(p.rel)) // the one file; its end is the end
		return out, nil
	}
	out.Truncated, err = t.walk(ctx, p, func(at, rel string, d fs.DirEntry) error {
		if !d.Type().IsRegular() {
			return nil
		}
		if a.Glob != "" {
			whole, _ := doublestar.Match(a.Glob, rel) // the pattern is valid
			name, _ := doublestar.Match(a.Glob, d.Name())
			if !whole && !name {
				return nil
			}
		}
		return look(at)
	}, &out.Truncated)
	return out, err
}

func clip(line []byte) string {
	text := strings.TrimRight(string(line), "\r\n")
	if len(text) > maxLine {
		text = text[:maxLine] + "..."
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
