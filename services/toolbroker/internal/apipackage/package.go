package apipackage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// Package is the chosen operations of an API: all that is needed to list them as tools and to call them.
type Package struct {
	Name              string             `json:"name"`
	Version           string             `json:"version"`
	BaseURL           string             `json:"base_url"`
	Auth              Auth               `json:"auth"`
	IdempotencyHeader string             `json:"idempotency_header,omitempty"`
	Digest            string             `json:"digest"`     // of the document's files and the manifest
	Operations        []Operation        `json:"operations"` // by tool name
	Definitions       map[string]*Schema `json:"definitions,omitempty"`
	// Retired are the tool names of operations that are no more, with what they were. Nobody else gets such a name:
	// grants that were given for it would come along.
	Retired map[string]string `json:"retired,omitempty"`
}

// Operation is one operation and the tool that it is shown as.
type Operation struct {
	Tool        string            `json:"tool"`
	ID          string            `json:"id,omitempty"` // its operationId
	Method      string            `json:"method"`
	Path        []Part            `json:"path"`
	Description string            `json:"description,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Effect      connection.Effect `json:"effect"`
	Writes      bool              `json:"writes,omitempty"`
	Probe       string            `json:"probe,omitempty"` // the tool that looks for its effect
	Parameters  []Parameter       `json:"parameters,omitempty"`
	Body        *Body             `json:"body,omitempty"`
	Accept      string            `json:"accept,omitempty"`
	Input       *Schema           `json:"input"` // without the definitions that it refers to
	View        View              `json:"view,omitzero"`
}

// Part is a piece of a path: text that is sent as it is, or the name of a parameter.
type Part struct {
	Text  string `json:"text,omitempty"`
	Param string `json:"param,omitempty"`
}

// Location is where a parameter goes.
type Location string

// The places for parameters. A cookie is none: it is the connection's own.
const (
	InPath   Location = "path"
	InQuery  Location = "query"
	InHeader Location = "header"
)

// Style is how a value that is not a single one is written.
type Style string

// The styles of the OpenAPI specification.
const (
	Simple         Style = "simple"
	Label          Style = "label"
	Matrix         Style = "matrix"
	Form           Style = "form"
	SpaceDelimited Style = "spaceDelimited"
	PipeDelimited  Style = "pipeDelimited"
	DeepObject     Style = "deepObject"
)

// Parameter is one parameter and the argument that it is filled from.
type Parameter struct {
	Arg          string   `json:"arg"`
	Name         string   `json:"name"`
	In           Location `json:"in"`
	Style        Style    `json:"style"`
	Explode      bool     `json:"explode,omitempty"`
	Required     bool     `json:"required,omitempty"`
	Reserved     bool     `json:"reserved,omitempty"`      // reserved characters are sent as they are
	JSON         bool     `json:"json,omitempty"`          // the value is sent as a JSON text
	MultiSegment bool     `json:"multi_segment,omitempty"` // a path parameter that may hold slashes
}

// BodyKind is how a body is made from arguments.
type BodyKind string

// The kinds of body.
const (
	JSONBody      BodyKind = "json"
	FormBody      BodyKind = "form"
	MultipartBody BodyKind = "multipart"
	TextBody      BodyKind = "text"
	BinaryBody    BodyKind = "binary"
)

// Body is an operation's body and the arguments that it is filled from: one for all of it, or one for each field.
type Body struct {
	Kind      BodyKind `json:"kind"`
	MediaType string   `json:"media_type"`
	Required  bool     `json:"required,omitempty"`
	Whole     string   `json:"whole,omitempty"`
	Fields    []Field  `json:"fields,omitempty"`
	Form      []Field  `json:"form,omitempty"` // how the fields of a whole form body are written, where the document says
}

// Field is one field of a body.
type Field struct {
	Arg      string `json:"arg,omitempty"`
	Name     string `json:"name"`
	Required bool   `json:"required,omitempty"`
	Style    Style  `json:"style,omitempty"` // of a form's field; none for the default
	Explode  bool   `json:"explode,omitempty"`
	File     bool   `json:"file,omitempty"`       // of a multipart form: the argument is a file's content
	Type     string `json:"media_type,omitempty"` // of a multipart form's part
}

// Key is what an operation is: its method and path, whatever its parameters are called. It is the same operation in a
// later version of the document when the key is the same.
func (o *Operation) Key() string {
	var b strings.Builder
	b.WriteString(o.Method + " ")
	for _, p := range o.Path {
		if p.Param != "" {
			b.WriteString("{}")
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

// Route is an operation's method and path, for people.
func (o *Operation) Route() string {
	var b strings.Builder
	b.WriteString(o.Method + " ")
	for _, p := range o.Path {
		if p.Param != "" {
			b.WriteString("{" + p.Param + "}")
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

// Operation finds an operation by its tool's name.
func (p *Package) Operation(tool string) (*Operation, bool) {
	i, ok := slices.BinarySearchFunc(p.Operations, tool, func(o Operation, name string) int { return strings.Compare(o.Tool, name) })
	if !ok {
		return nil, false
	}
	return &p.Operations[i], true
}

// Tools lists the operations as tools.
func (p *Package) Tools() ([]connection.Tool, error) {
	out := make([]connection.Tool, 0, len(p.Operations))
	for i := range p.Operations {
		o := &p.Operations[i]
		schema, err := json.Marshal(p.inputOf(o))
		if err != nil {
			return nil, problem.Wrap(err, problem.Internal, "the schema of %s cannot be written", o.Tool)
		}
		out = append(out, connection.Tool{Name: o.Tool, Description: o.Description, Schema: schema, Effect: o.Effect, Writes: o.Writes})
	}
	return out, nil
}

// format is the version of the stored form. It changes when an older reader would misunderstand.
const format = 1

// stored is a package as it is kept.
type stored struct {
	Format  int             `json:"format"`
	SHA256  string          `json:"sha256"` // of Package
	Package json.RawMessage `json:"package"`
}

// Marshal writes a package to be kept.
func (p *Package) Marshal() ([]byte, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the package cannot be written")
	}
	sum := sha256.Sum256(raw)
	return json.Marshal(stored{format, hex.EncodeToString(sum[:]), raw})
}

// Unmarshal reads a package that was kept, and checks that it is whole and of a form that this program knows. A package
// is not a document: it comes from where only this program writes.
func Unmarshal(raw []byte) (*Package, error) {
	var s stored
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the API package cannot be read")
	}
	if s.Format != format {
		return nil, problem.New(problem.Invalid, "the API package has format %d, and this program reads %d; import it again", s.Format, format)
	}
	if sum := sha256.Sum256(s.Package); hex.EncodeToString(sum[:]) != s.SHA256 {
		return nil, problem.New(problem.Invalid, "the API package is not what was stored; import it again")
	}
	var p Package
	dec := json.NewDecoder(bytes.NewReader(s.Package))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the API package cannot be read")
	}
	if _, err := parseBase(p.BaseURL); err != nil {
		return nil, err
	}
	if err := p.Auth.validate(); err != nil {
		return nil, err
	}
	return &p, nil
}
