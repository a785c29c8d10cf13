package apipackage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// bundle is the files that a document consists of. Nothing outside of it is ever read.
type bundle struct {
	files fs.FS
	docs  map[string]*document
	sizes int
	bytes map[string][]byte // as they were read, for the digest
}

// document is one file of a bundle, as JSON.
type document struct {
	name   string
	raw    json.RawMessage
	levels map[string]map[string]json.RawMessage // objects that were looked into often, by pointer
}

// open gives a file of the bundle, which is read once.
func (b *bundle) open(name string) (*document, error) {
	if d, ok := b.docs[name]; ok {
		return d, nil
	}
	if !fs.ValidPath(name) || name == "." {
		return nil, problem.New(problem.Denied, "%.200q is not a file of the document's own folder", name)
	}
	if len(b.docs) == maxFiles {
		return nil, problem.New(problem.TooLarge, "the document has more than %d files", maxFiles)
	}
	raw, err := b.read(name)
	if err != nil {
		return nil, err
	}
	d, err := parse(name, raw)
	if err != nil {
		return nil, problem.Wrap(err, problem.CodeOf(err), "%s: %s", name, problem.DetailOf(err).Message)
	}
	b.docs[name], b.bytes[name] = d, raw
	return d, nil
}

func (b *bundle) read(name string) ([]byte, error) {
	f, err := b.files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, problem.Wrap(err, problem.NotFound, "there is no file %.200q in the document's folder", name)
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.Denied, "file %.200q of the document cannot be opened", name)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, problem.Wrap(err, problem.Denied, "%.200q is not a regular file", name)
	}
	raw, err := io.ReadAll(io.LimitReader(f, int64(maxDocument-b.sizes)+1))
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "file %.200q of the document cannot be read", name)
	}
	if b.sizes += len(raw); b.sizes > maxDocument {
		return nil, problem.New(problem.TooLarge, "the document is larger than %d MiB", maxDocument>>20)
	}
	return raw, nil
}

// parse reads one file, JSON or YAML.
func parse(name string, raw []byte) (*document, error) {
	raw = bytes.TrimPrefix(raw, []byte("\ufeff"))
	text := json.RawMessage(raw)
	if start := spaceEnd(raw, 0); start < len(raw) && (raw[start] == '{' || raw[start] == '[') {
		nodes, depth := measure(raw)
		if nodes > maxNodes || depth > maxDepth {
			return nil, problem.New(problem.TooLarge, "it has more than %d values or nests deeper than %d", maxNodes, maxDepth)
		}
	}
	if !json.Valid(raw) {
		var err error
		if text, err = fromYAML(raw); err != nil {
			return nil, err
		}
	}
	return &document{name: name, raw: text, levels: map[string]map[string]json.RawMessage{}}, nil
}

// place is a value in a bundle: what a reference leads to.
type place struct {
	doc     *document
	pointer string // RFC 6901
}

func (p place) String() string { return p.doc.name + "#" + p.pointer }

// follow says where a reference in a document leads.
func (b *bundle) follow(from *document, ref string) (place, error) {
	u, err := url.Parse(ref)
	if err != nil {
		return place{}, problem.New(problem.Invalid, "%.200q is not a reference", ref)
	}
	if u.Scheme != "" || u.Host != "" || u.Opaque != "" || u.User != nil || u.RawQuery != "" {
		return place{}, problem.New(problem.Denied, "reference %.200q leads out of the document's folder, and is not followed", ref)
	}
	if u.Fragment != "" && u.Fragment[0] != '/' {
		return place{}, problem.New(problem.Invalid, "reference %.200q names an anchor; only pointers are followed", ref)
	}
	doc := from
	if u.Path != "" {
		if path.IsAbs(u.Path) || strings.ContainsAny(u.Path, "\\\x00") {
			return place{}, problem.New(problem.Denied, "reference %.200q leads out of the document's folder, and is not followed", ref)
		}
		if doc, err = b.open(path.Join(path.Dir(from.name), u.Path)); err != nil {
			return place{}, err
		}
	}
	return place{doc, u.Fragment}, nil
}

// value gives the JSON at a place.
func (p place) value() (json.RawMessage, error) {
	raw := p.doc.raw
	if p.pointer == "" {
		return raw, nil
	}
	at := ""
	for token := range strings.SplitSeq(p.pointer[1:], "/") {
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		next, ok := p.doc.member(at, raw, name)
		if !ok {
			return nil, problem.New(problem.NotFound, "there is nothing at %.200q", p.String())
		}
		raw, at = next, at+"/"+token
	}
	return raw, nil
}

// member looks into the value raw at pointer. Objects near the root, such as the one of all schemas, are kept open.
func (d *document) member(pointer string, raw json.RawMessage, name string) (json.RawMessage, bool) {
	if start := spaceEnd(raw, 0); start < len(raw) && raw[start] == '[' {
		i := 0
		for item := range elements(raw) {
			if fmt.Sprint(i) == name {
				return item, true
			}
			i++
		}
		return nil, false
	}
	if strings.Count(pointer, "/") <= 2 {
		level, ok := d.levels[pointer]
		if !ok {
			level = maps.Collect(members(raw))
			d.levels[pointer] = level
		}
		found, ok := level[name]
		return found, ok
	}
	var found json.RawMessage
	for key, item := range members(raw) {
		if key == name {
			found = item // the last one counts, as everywhere
		}
	}
	return found, found != nil
}

// read decodes what a place holds into a value of type T.
func read[T any](p place) (*T, error) {
	raw, err := p.value()
	if err != nil {
		return nil, err
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%.200q cannot be read: %.200s", p.String(), err)
	}
	return &v, nil
}

// contents gives the files that were read, by name and in order, for the digest.
func (b *bundle) contents() [][]byte {
	var out [][]byte
	for _, name := range slices.Sorted(maps.Keys(b.bytes)) {
		out = append(out, []byte(name), b.bytes[name])
	}
	return out
}
