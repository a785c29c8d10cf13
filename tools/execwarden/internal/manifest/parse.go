package manifest

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Header is what every document begins with. The fields of each kind repeat it, since they are read strictly.
type Header struct {
	Kind Kind   `yaml:"kind"`
	Name string `yaml:"name"`
}

// document is one document that is being read.
type document struct {
	file   string
	body   ast.Node
	header Header
	getenv func(string) string
	wrong  *faults
}

func parse(file string, raw []byte, getenv func(string) string, wrong *faults) (out []Resource) {
	tree, err := parser.ParseBytes(raw, 0)
	if err != nil {
		wrong.addYAML(Where{file, 1}, err)
		return nil
	}
	for _, doc := range tree.Docs {
		if doc.Body == nil {
			continue // nothing between two separators
		}
		d := &document{file: file, body: doc.Body, getenv: getenv, wrong: wrong}
		if r, ok := d.read(); ok {
			out = append(out, r)
		}
	}
	return out
}

func (d *document) read() (Resource, bool) {
	start := Where{d.file, d.body.GetToken().Position.Line}
	if _, null := d.body.(*ast.NullNode); null {
		return Resource{}, false
	}
	if d.body.Type() != ast.MappingType {
		d.wrong.add(start, "a document is a mapping that begins with kind: and name:")
		return Resource{}, false
	}
	var refused linkFinder
	ast.Walk(&refused, d.body)
	if refused.line > 0 {
		d.wrong.add(Where{d.file, refused.line}, "anchors, aliases and merge keys are not read here: write the value out")
		return Resource{}, false
	}
	// Not strictly: which fields there are depends on the kind.
	if err := yaml.NodeToValue(d.body, &d.header); err != nil {
		d.wrong.addYAML(start, err)
		return Resource{}, false
	}
	builder, ok := build[d.header.Kind]
	switch {
	case d.header.Kind == "":
		d.wrong.add(start, "the document has no kind; use one of %s", kindNames())
		return Resource{}, false
	case !ok:
		d.fault("$.kind", "kind %.40q is not one of %s", d.header.Kind, kindNames())
		return Resource{}, false
	}
	before := len(*d.wrong)
	r := builder(d)
	r.Key, r.Where = Key{d.header.Kind, d.header.Name}, start
	return r, len(*d.wrong) == before
}

// fields reads the document as the fields of its kind. What is wrong with their form is recorded, and false.
func fields[F any](d *document) (f F, ok bool) {
	if err := yaml.NodeToValue(d.body, &f, yaml.Strict()); err != nil {
		d.wrong.addYAML(d.at("$"), err)
		return f, false
	}
	return f, true
}

// fault records what is wrong with the field at a path, such as $.model.url.
func (d *document) fault(path, format string, args ...any) {
	d.wrong.add(d.at(path), format, args...)
}

// at is the line of a field, or of the document when the field is not there.
func (d *document) at(path string) Where {
	node := d.node(path)
	if node == nil {
		node = d.body
	}
	return Where{d.file, node.GetToken().Position.Line}
}

func (d *document) node(path string) ast.Node {
	p, err := yaml.PathString(path)
	if err != nil {
		return nil
	}
	node, err := p.FilterNode(d.body)
	if err != nil {
		return nil
	}
	return node
}

// linkFinder finds the first node that stands for another one: a few lines of those can mean gigabytes.
type linkFinder struct{ line int }

func (f *linkFinder) Visit(n ast.Node) ast.Visitor {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode, *ast.TagNode:
		if f.line == 0 {
			f.line = n.GetToken().Position.Line
		}
	}
	return f
}

// addYAML records an error of the YAML library by its own line, without the source around it: that may hold what
// somebody wrote in the wrong place.
func (f *faults) addYAML(start Where, err error) {
	var y yaml.Error
	if !errors.As(err, &y) {
		f.add(start, "%v", err)
		return
	}
	at := start
	if token := y.GetToken(); token != nil && token.Position != nil {
		at.Line = token.Position.Line
	}
	var mismatch *yaml.TypeError
	if errors.As(err, &mismatch) {
		f.add(at, "%s", misfit(mismatch))
		return
	}
	f.add(at, "%s", y.GetMessage())
}

func misfit(err *yaml.TypeError) string {
	takes := map[string]string{
		"string": "a text", "int": "a whole number", "bool": "true or false", "slice": "a list", "struct": "fields of its own", "ptr": "fields of its own",
	}[err.DstType.Kind().String()]
	if takes == "" {
		takes = err.DstType.Kind().String()
	}
	return fmt.Sprintf("this field takes %s", takes)
}
