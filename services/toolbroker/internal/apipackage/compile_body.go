package apipackage

import (
	"cmp"
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/execwarden/execwarden/libs/problem"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// kindOf says how a body of a media type is made.
func kindOf(media string) BodyKind {
	base, _, err := mime.ParseMediaType(media)
	switch {
	case err != nil:
		return ""
	case base == "application/json", base == "*/*", base == "application/*", strings.HasSuffix(base, "+json"):
		return JSONBody
	case base == "application/x-www-form-urlencoded":
		return FormBody
	case base == "multipart/form-data":
		return MultipartBody
	case strings.HasPrefix(base, "text/"), strings.HasSuffix(base, "+xml"), strings.HasSuffix(base, "+yaml"),
		base == "application/xml", base == "application/yaml", base == "application/x-ndjson":
		return TextBody
	case strings.HasPrefix(base, "multipart/"):
		return ""
	}
	return BinaryBody
}

// preference is the order in which a body's media types are tried.
var preference = []string{"application/json", "application/merge-patch+json"}

var kinds = []BodyKind{JSONBody, FormBody, MultipartBody, TextBody, BinaryBody}

// choose picks the media type of a body.
func choose(content openapi3.Content, wanted string) (string, error) {
	names := sortedKeys(content)
	if wanted != "" {
		if !slices.Contains(names, wanted) {
			return "", problem.New(problem.Invalid, "its body cannot be %.80q; it can be %s", wanted, strings.Join(names, ", "))
		}
		names = []string{wanted}
	}
	rank := func(media string) int {
		if i := slices.Index(preference, media); i >= 0 {
			return i
		}
		if i := slices.Index(kinds, kindOf(media)); i >= 0 {
			return len(preference) + i
		}
		return 99
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	if len(names) == 0 || kindOf(names[0]) == "" {
		return "", problem.New(problem.Invalid, "its body has no media type that can be sent")
	}
	return names[0], nil
}

// body compiles an operation's body.
func (c *compiler) body(o *Operation, op *openapi3.Operation, own Override, f found) ([]argument, error) {
	if op.RequestBody == nil {
		return nil, nil
	}
	b, doc := op.RequestBody.Value, f.at.doc
	if op.RequestBody.Ref != "" {
		p, err := c.defs.settle(doc, op.RequestBody.Ref)
		if err != nil {
			return nil, err
		}
		if b, err = c.shared(p); err != nil {
			return nil, err
		}
		doc = p.doc
	}
	if b == nil || len(b.Content) == 0 {
		return nil, nil
	}
	name, err := choose(b.Content, own.MediaType)
	if err != nil {
		return nil, err
	}
	media := cmp.Or(b.Content[name], &openapi3.MediaType{})
	o.Body = &Body{Kind: kindOf(name), MediaType: name, Required: b.Required}
	if strings.Contains(name, "*") {
		o.Body.MediaType = "application/json"
	}
	schema := cmp.Or(c.defs.ref(media.Schema, doc), &Schema{})
	if err := c.defs.finish(); err != nil { // the body's fields are looked at next
		return nil, err
	}
	var args []argument
	switch o.Body.Kind {
	case TextBody:
		args = o.whole("body", &Schema{Type: Types{"string"}, Description: "the body, as " + name})
	case BinaryBody:
		args = o.whole("body_base64", &Schema{Type: Types{"string"}, Description: "the body, as " + name + ", in base64"})
	default:
		args = c.fields(o, schema, media)
	}
	if len(args) == 0 {
		if o.Body.Kind != JSONBody || !o.Body.Required { // a body that has to be there is empty braces
			o.Body = nil
		}
	} else if o.Method == "GET" || o.Method == "HEAD" {
		c.warn("a body with %s is left out: servers do not read it", o.Method)
		o.Body, args = nil, nil
	}
	return args, nil
}

// shared reads a body that operations refer to, once for all of them.
func (c *compiler) shared(p place) (*openapi3.RequestBody, error) {
	if b, ok := c.bodies[p.String()]; ok {
		return b, nil
	}
	b, err := read[openapi3.RequestBody](p)
	if err == nil {
		c.bodies[p.String()] = b
	}
	return b, err
}

// whole makes one argument of a body.
func (o *Operation) whole(arg string, schema *Schema) []argument {
	body := o.Body
	return []argument{{name: arg, in: inBody, schema: schema, must: body.Required, set: func(arg string) { body.Whole = arg }}}
}

// fields makes an argument of each field of a body, where it has a fixed set of them, and otherwise one of all of it.
func (c *compiler) fields(o *Operation, schema *Schema, media *openapi3.MediaType) []argument {
	props, required, ok := c.defs.flat(schema, maxRefs)
	if shut := schema.AdditionalProperties; !ok && len(schema.Properties) == 0 && shut != nil && shut.Always != nil && !*shut.Always {
		return nil // an object that can only be empty
	}
	if !ok {
		if o.Body.Kind != JSONBody {
			for _, name := range sortedKeys(media.Encoding) {
				o.Body.Form = append(o.Body.Form, encoded(Field{Name: name}, media.Encoding[name]))
			}
		}
		return o.whole("body", schema)
	}
	var args []argument
	o.Body.Fields = make([]Field, 0, len(props)) // so that the addresses stay
	for _, name := range sortedKeys(props) {
		field, s := encoded(Field{Name: name, Required: slices.Contains(required, name)}, media.Encoding[name]), props[name]
		if o.Body.Kind == MultipartBody {
			s, field.File = c.defs.file(s)
		}
		o.Body.Fields = append(o.Body.Fields, field)
		kept := &o.Body.Fields[len(o.Body.Fields)-1]
		args = append(args, argument{name: name, in: inBody, schema: s, must: o.Body.Required && field.Required, set: func(arg string) { kept.Arg = arg }})
	}
	return args
}

func encoded(f Field, e *openapi3.Encoding) Field {
	if e == nil {
		return f
	}
	f.Type = e.ContentType
	if e.Style != "" || e.Explode != nil || e.AllowReserved {
		f.Style = cmp.Or(Style(e.Style), Form)
		f.Explode = f.Style == Form
		if e.Explode != nil {
			f.Explode = *e.Explode
		}
	}
	return f
}

// flat gives the fields of an object that has a fixed set of them and no rules between them.
func (d *definitions) flat(s *Schema, hops int) (props map[string]*Schema, required []string, ok bool) {
	if hops == 0 || s == nil || s.Always != nil {
		return nil, nil, false
	}
	if s.Ref != "" {
		return d.flat(d.schemas[strings.TrimPrefix(s.Ref, refPrefix)], hops-1)
	}
	if len(s.Type) > 0 && (!s.Type.only("object") || s.Type.has("null")) ||
		s.AnyOf != nil || s.OneOf != nil || s.Not != nil || s.If != nil || s.PatternProperties != nil || s.PropertyNames != nil ||
		s.MinProperties > 0 || s.MaxProperties != nil || s.DependentRequired != nil || s.Enum != nil || s.Const != nil ||
		s.AdditionalProperties != nil && (s.AdditionalProperties.Always == nil || *s.AdditionalProperties.Always) {
		return nil, nil, false
	}
	props, required = maps.Clone(s.Properties), s.Required
	for _, part := range s.AllOf {
		more, must, ok := d.flat(part, hops-1)
		if !ok {
			return nil, nil, false
		}
		if props == nil {
			props = map[string]*Schema{}
		}
		for name, p := range more {
			if props[name] != nil {
				return nil, nil, false // both have to hold
			}
			props[name] = p
		}
		required = append(slices.Clone(required), must...)
	}
	if len(props) == 0 {
		return nil, nil, false
	}
	for _, name := range required {
		if props[name] == nil {
			return nil, nil, false // it has to be there, and nothing says what it is
		}
	}
	return props, required, true
}

// file says whether a field of a multipart form is a file, or several, and gives the schema that an argument has then:
// its content, never a path to it (octo-cli#177).
func (d *definitions) file(s *Schema) (*Schema, bool) {
	target := s
	for range maxRefs {
		if target == nil || target.Ref == "" {
			break
		}
		target = d.schemas[strings.TrimPrefix(target.Ref, refPrefix)]
	}
	switch {
	case target == nil:
		return s, false
	case target.Type.only("string") && target.Format == "binary":
		f := fileSchema()
		f.Description = cmp.Or(target.Description, f.Description)
		return f, true
	case target.Type.only("array") && target.Items != nil:
		if items, ok := d.file(target.Items); ok && !items.Type.has("array") {
			return &Schema{Type: Types{"array"}, Items: items, Description: target.Description, MinItems: target.MinItems, MaxItems: target.MaxItems}, true
		}
	}
	return s, false
}

func fileSchema() *Schema {
	return &Schema{
		Type: Types{"object"}, Description: "a file, by its content",
		Properties: map[string]*Schema{
			"base64":     {Type: Types{"string"}, Description: "the content, in base64"},
			"filename":   {Type: Types{"string"}, Description: "what to call it"},
			"media_type": {Type: Types{"string"}, Description: "such as image/png"},
		},
		Required: []string{"base64"}, AdditionalProperties: &Schema{Always: new(bool)},
	}
}
