package apipackage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
)

// Source is what a package is made of.
type Source struct {
	// Files is the folder of the document. References are followed inside of it alone, so it should be one that cannot
	// be left by a symbolic link either: os.OpenRoot(dir) and its FS, or an archive.
	Files fs.FS
	// Document is the name of the document in Files.
	Document string
	Manifest Manifest
	// Previous is the package as it was imported last, whose tools keep their names. None for a first import.
	Previous *Package
	// MaxPrefix is the length of the longest connection name that the tools may be shown under. Defaults to 16.
	MaxPrefix int
}

// defaultPrefix is a connection's name of ordinary length.
const defaultPrefix = 16

// Import makes a package. What is wrong with the document at a place where it can be done without is a warning: real
// documents have such places.
func Import(ctx context.Context, src Source) (*Package, []Warning, error) {
	if err := src.Manifest.validate(); err != nil {
		return nil, nil, err
	}
	if src.MaxPrefix <= 0 {
		src.MaxPrefix = defaultPrefix
	}
	im := importer{source: src, bundle: &bundle{files: src.Files, docs: map[string]*document{}, bytes: map[string][]byte{}}}
	im.defs = &definitions{bundle: im.bundle, warn: im.warn, schemas: map[string]*Schema{}, names: map[string]string{}, readOnly: map[string]bool{}, settled: map[string]place{}}
	p, err := im.run(ctx)
	return p, im.warnings, err
}

type importer struct {
	source   Source
	bundle   *bundle
	defs     *definitions
	at       string // the operation that is being read
	warnings []Warning
}

func (im *importer) warn(format string, args ...any) {
	if len(im.warnings) < maxWarnings {
		im.warnings = append(im.warnings, Warning{im.at, fmt.Sprintf(format, args...)})
	}
}

func (im *importer) run(ctx context.Context) (*Package, error) {
	doc, err := im.open()
	if err != nil {
		return nil, err
	}
	manifest := im.source.Manifest
	chosen, err := im.choose(ctx, doc)
	if err != nil {
		return nil, err
	}
	c := &compiler{manifest: manifest, defs: im.defs, secrets: im.secrets(doc), bodies: map[string]*openapi3.RequestBody{}, warn: im.warn}
	p := &Package{Name: manifest.Name, Version: manifest.Version, BaseURL: manifest.BaseURL, Auth: manifest.Auth, IdempotencyHeader: manifest.IdempotencyHeader}
	for _, f := range chosen {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		im.at = f.label()
		o, err := c.operation(f)
		if err == nil {
			err = im.defs.finish()
		}
		if errors.Is(err, errCompiled) {
			return nil, err
		}
		if err != nil {
			im.warn("the operation is left out: %s", problem.DetailOf(err).Message)
			continue
		}
		p.Operations = append(p.Operations, o)
	}
	im.at = ""
	if len(p.Operations) == 0 {
		return nil, problem.New(problem.Invalid, "the manifest includes no operation that can be called")
	}
	p.Definitions = im.defs.schemas
	return p, im.seal(ctx, p)
}

// open reads the document, of whatever version.
func (im *importer) open() (*document, error) {
	doc, err := im.bundle.open(im.source.Document)
	if err != nil {
		return nil, err
	}
	head, err := read[struct {
		OpenAPI string          `json:"openapi"`
		Swagger json.RawMessage `json:"swagger"` // some write a number
	}](place{doc, ""})
	if err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(head.OpenAPI, "3.0"), strings.HasPrefix(head.OpenAPI, "3.1"):
		return doc, nil
	case strings.HasPrefix(head.OpenAPI, "3."):
		im.warn("the document is of OpenAPI %.20s, and is read as 3.1", head.OpenAPI)
		return doc, nil
	case strings.HasPrefix(strings.Trim(string(head.Swagger), `"`), "2"):
		if doc, err = fromSwagger(doc); err != nil {
			return nil, err
		}
		im.bundle.docs[doc.name] = doc // what refers to it means the converted one
		return doc, nil
	}
	return nil, problem.New(problem.Invalid, "the document is neither OpenAPI 3 nor Swagger 2")
}

var methods = map[string]string{"get": "GET", "head": "HEAD", "post": "POST", "put": "PUT", "patch": "PATCH", "delete": "DELETE"}

// choose finds the operations that the manifest includes, in the order of their keys.
func (im *importer) choose(ctx context.Context, doc *document) ([]found, error) {
	paths := place{doc, "/paths"}
	raw, err := paths.value()
	if err != nil {
		return nil, problem.New(problem.Invalid, "the document has no paths")
	}
	var chosen []found
	seen, ids := map[string]string{}, map[string]string{}
	for path := range members(raw) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		item := place{doc, "/paths/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(path)}
		item, err := im.item(item)
		if err != nil {
			im.warn("path %.200q is left out: %s", path, problem.DetailOf(err).Message)
			continue
		}
		value, err := item.value()
		if err != nil {
			continue // item has just read it
		}
		for word, op := range members(value) {
			method, ok := methods[word]
			if !ok {
				continue
			}
			f := found{method: method, path: path, item: item, at: place{item.doc, item.pointer + "/" + word}}
			var head struct {
				ID   string   `json:"operationId"`
				Tags []string `json:"tags"`
			}
			if err := json.Unmarshal(op, &head); err != nil {
				im.warn("%.200s is left out: it is not an operation", f.route())
				continue
			}
			f.id, f.tags = head.ID, head.Tags
			if !im.source.Manifest.chooses(f.id, f.route(), f.tags) {
				continue
			}
			if parts, err := parsePath(path); err == nil {
				key := (&Operation{Method: method, Path: parts}).Key()
				if other := seen[key]; other != "" {
					im.warn("%.200s is left out: it cannot be told from %.200s", f.route(), other)
					continue
				}
				seen[key] = f.route()
			}
			if other := ids[f.id]; other != "" && f.id != "" {
				im.warn("operationId %.100q belongs to %.200s and %.200s; what the manifest says of it goes for both", f.id, other, f.route())
			}
			ids[f.id] = f.route()
			if chosen = append(chosen, f); len(chosen) > maxOperations {
				return nil, problem.New(problem.TooLarge, "the manifest includes more than %d operations", maxOperations)
			}
		}
	}
	for _, name := range sortedKeys(im.source.Manifest.Operations) {
		if !slices.ContainsFunc(chosen, func(f found) bool { return f.id == name || f.route() == name }) {
			im.warn("the manifest says something of %q, which is none of the chosen operations", name)
		}
	}
	slices.SortFunc(chosen, func(a, b found) int {
		if c := strings.Compare(a.path, b.path); c != 0 {
			return c
		}
		return strings.Compare(a.method, b.method)
	})
	return chosen, nil
}

// item settles a path item that is written elsewhere.
func (im *importer) item(p place) (place, error) {
	head, err := read[reference](p)
	if err != nil || head.Ref == "" {
		return p, err
	}
	return im.defs.settle(p.doc, head.Ref)
}

// secrets are the parameters that carry a credential, by the manifest or the document. They are never arguments: who
// sets them decides as whom the call is made (apisix#13959).
func (im *importer) secrets(doc *document) map[string]bool {
	out := map[string]bool{"header authorization": true, "header proxy-authorization": true}
	add := func(in, name string) { out[in+" "+strings.ToLower(name)] = true }
	m := im.source.Manifest
	if m.Auth.Name != "" {
		add(string(m.Auth.Kind), m.Auth.Name)
	}
	if m.IdempotencyHeader != "" {
		add("header", m.IdempotencyHeader)
	}
	raw, err := place{doc, "/components/securitySchemes"}.value()
	if err != nil {
		return out // it has none
	}
	for _, scheme := range members(raw) {
		var s struct {
			Type string `json:"type"`
			In   string `json:"in"`
			Name string `json:"name"`
		}
		if json.Unmarshal(scheme, &s) == nil && s.Type == "apiKey" {
			add(s.In, s.Name)
		}
	}
	return out
}

// seal cuts what is too large to show, gives the tools their names, and signs the whole with its digest.
func (im *importer) seal(ctx context.Context, p *Package) error {
	p.prune()
	shown := p.Operations[:0]
	for i := range p.Operations {
		if err := ctx.Err(); err != nil {
			return err
		}
		o := &p.Operations[i]
		im.at = cmp.Or(o.ID, o.Route())
		switch wide, ok := p.fit(o); {
		case !ok:
			im.warn("the operation is left out: its arguments alone are over %d KiB", mostToolSchema>>10)
			continue
		case wide:
			im.warn("its schema is over %d KiB even with the names and types of its arguments alone", maxToolSchema>>10)
		case o.View.Depth > 0:
			im.warn("its schema is over %d KiB, and is shown %d deep", maxToolSchema>>10, o.View.Depth)
		}
		shown = append(shown, *o)
	}
	p.Operations = shown
	var err error
	if p.Retired, err = nameTools(p.Operations, im.source.Manifest, im.source.Previous, im.source.MaxPrefix); err != nil {
		return err
	}
	if err := p.nameProbes(); err != nil {
		return err
	}
	im.at = ""
	manifest, err := im.source.Manifest.canonical()
	if err != nil {
		return problem.Wrap(err, problem.Internal, "the manifest cannot be written")
	}
	p.Digest = permit.Digest(append(im.bundle.contents(), manifest)...)
	return nil
}

// nameProbes puts the tool's name where the manifest named the operation that probes.
func (p *Package) nameProbes() error {
	for i := range p.Operations {
		o := &p.Operations[i]
		if o.Probe == "" {
			continue
		}
		j := slices.IndexFunc(p.Operations, func(q Operation) bool { return q.ID == o.Probe || q.Route() == o.Probe })
		if j < 0 {
			return problem.New(problem.Invalid, "%s has the probe %q, which is none of the chosen operations", o.Tool, o.Probe)
		}
		probe := &p.Operations[j]
		if probe.Writes {
			return problem.New(problem.Invalid, "%s has the probe %q, which writes", o.Tool, o.Probe)
		}
		for _, arg := range probe.Input.Required {
			if o.Input.Properties[arg] == nil {
				return problem.New(problem.Invalid, "%s has the probe %q, whose argument %s it does not have", o.Tool, o.Probe, arg)
			}
		}
		o.Probe = probe.Tool
	}
	return nil
}
