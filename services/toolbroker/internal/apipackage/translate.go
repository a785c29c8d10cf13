package apipackage

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/execwarden/execwarden/libs/problem"
)

// definitions turns a document's schemas into ours. A schema that is referred to becomes a definition with a name, and
// what refers to it stays a reference: so a cycle ends, and nothing is written twice.
type definitions struct {
	bundle *bundle
	warn   func(format string, args ...any)

	schemas  map[string]*Schema // by name
	names    map[string]string  // of places
	settled  map[string]place   // where references lead, by file and reference
	readOnly map[string]bool    // places that hold what a request does not carry
	todo     []task
	nodes    int
}

type task struct {
	place place
	into  *Schema
}

var errCompiled = problem.New(problem.TooLarge, "the chosen operations have schemas of more than %d nodes; choose fewer", maxCompiled)

// settle follows a reference to where there is more than another reference.
func (d *definitions) settle(from *document, ref string) (place, error) {
	asked := from.name + " " + ref
	if p, ok := d.settled[asked]; ok {
		return p, nil
	}
	for range maxRefs {
		p, err := d.bundle.follow(from, ref)
		if err != nil {
			return place{}, err
		}
		next, err := read[reference](p)
		if err != nil {
			return place{}, err
		}
		if next.Ref == "" {
			d.settled[asked] = p
			return p, nil
		}
		from, ref = p.doc, next.Ref
	}
	return place{}, problem.New(problem.Invalid, "reference %.200q leads from one to the next without end", ref)
}

// reference is what any value may be instead of what is expected.
type reference struct {
	Ref string
}

// UnmarshalJSON implements json.Unmarshaler. A schema may also be true or false, which is no reference.
func (r *reference) UnmarshalJSON(raw []byte) error {
	for name, v := range members(raw) {
		if name == "$ref" {
			return json.Unmarshal(v, &r.Ref)
		}
	}
	return nil
}

// refer gives the schema that stands for a referenced one.
func (d *definitions) refer(from *document, ref string) *Schema {
	p, err := d.settle(from, ref)
	if err != nil {
		d.warn("%s; any value is taken there", problem.DetailOf(err).Message)
		return &Schema{}
	}
	key := p.String()
	name, ok := d.names[key]
	if !ok {
		name = d.name(p)
		d.names[key] = name
		d.schemas[name] = &Schema{}
		d.todo = append(d.todo, task{p, d.schemas[name]})
	}
	return &Schema{Ref: refPrefix + name}
}

const refPrefix = "#/$defs/"

// name names the definition of a place by the last word of its pointer.
func (d *definitions) name(p place) string {
	word := p.pointer[strings.LastIndexByte(p.pointer, '/')+1:]
	if word == "" {
		word = p.doc.name
	}
	base := slug(word, 48, "-")
	if _, taken := d.schemas[base]; base != "" && !taken {
		return base
	}
	return strings.TrimPrefix(base+"_"+shortHash(p.String()), "_")
}

// finish converts the definitions that were referred to, and what those refer to in turn.
func (d *definitions) finish() error {
	for len(d.todo) > 0 {
		if d.nodes > maxCompiled {
			return errCompiled
		}
		t := d.todo[len(d.todo)-1]
		d.todo = d.todo[:len(d.todo)-1]
		s, err := read[openapi3.Schema](t.place)
		if err != nil {
			d.warn("%s; any value is taken there", problem.DetailOf(err).Message)
			continue
		}
		*t.into = *d.convert(s, t.place.doc)
	}
	if d.nodes > maxCompiled {
		return errCompiled
	}
	return nil
}

func (d *definitions) ref(r *openapi3.SchemaRef, at *document) *Schema {
	switch {
	case r == nil:
		return nil
	case r.Ref != "":
		d.nodes++
		return d.refer(at, r.Ref)
	case r.Value == nil:
		return &Schema{}
	}
	return d.convert(r.Value, at)
}

func (d *definitions) convert(s *openapi3.Schema, at *document) *Schema {
	if d.nodes++; d.nodes > maxCompiled {
		return &Schema{} // finish says so
	}
	out := &Schema{
		Always:            s.Always,
		Format:            s.Format,
		Description:       clip(s.Description, maxArgDescription),
		Const:             literal(s.Const),
		Default:           literal(s.Default),
		MinProperties:     s.MinProps,
		MaxProperties:     s.MaxProps,
		DependentRequired: s.DependentRequired,
		MinItems:          s.MinItems,
		MaxItems:          s.MaxItems,
		MinContains:       s.MinContains,
		MaxContains:       s.MaxContains,
		UniqueItems:       s.UniqueItems,
		Minimum:           s.Min,
		Maximum:           s.Max,
		MultipleOf:        s.MultipleOf,
		MinLength:         s.MinLength,
		MaxLength:         s.MaxLength,
		Pattern:           s.Pattern,
		Items:             d.ref(s.Items, at),
		Contains:          d.ref(s.Contains, at),
		PropertyNames:     d.ref(s.PropertyNames, at),
		Not:               d.ref(s.Not, at),
		If:                d.ref(s.If, at),
		Then:              d.ref(s.Then, at),
		Else:              d.ref(s.Else, at),
		PrefixItems:       d.list(s.PrefixItems, at),
		AllOf:             d.list(s.AllOf, at),
		AnyOf:             d.list(s.AnyOf, at),
		OneOf:             d.list(s.OneOf, at),
		PatternProperties: d.named(s.PatternProperties, at, nil),
	}
	out.ExclusiveMinimum, out.Minimum = bound(s.ExclusiveMin, out.Minimum)
	out.ExclusiveMaximum, out.Maximum = bound(s.ExclusiveMax, out.Maximum)
	if s.ContentMediaType != "" && s.ContentEncoding == "" && out.Format == "" && s.Type.Is("string") {
		out.Format = "binary" // how OpenAPI 3.0 said so
	}
	if s.Type != nil {
		out.Type = slices.Clone(Types(*s.Type))
	}
	for _, v := range s.Enum {
		out.Enum = append(out.Enum, literal(v))
	}
	if s.Nullable && len(out.Type) > 0 && !out.Type.has("null") {
		out.Type = append(out.Type, "null")
		if len(out.Enum) > 0 && !slices.ContainsFunc(out.Enum, isNull) {
			out.Enum = append(out.Enum, json.RawMessage("null"))
		}
	}
	if s.Nullable && len(out.Type) == 0 && len(out.OneOf) > 0 {
		out.OneOf = append(out.OneOf, &Schema{Type: Types{"null"}})
	}
	left := map[string]bool{}
	out.Properties = d.named(s.Properties, at, left)
	for _, name := range s.Required {
		if !left[name] && !slices.Contains(out.Required, name) {
			out.Required = append(out.Required, name)
		}
	}
	if has := s.AdditionalProperties.Has; has != nil {
		out.AdditionalProperties = &Schema{Always: has}
	} else {
		out.AdditionalProperties = d.ref(s.AdditionalProperties.Schema, at)
	}
	return out
}

func (d *definitions) list(refs openapi3.SchemaRefs, at *document) []*Schema {
	var out []*Schema
	for _, r := range refs {
		if s := d.ref(r, at); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// named converts properties. Those that only an answer has are left out, and noted.
func (d *definitions) named(refs openapi3.Schemas, at *document, left map[string]bool) map[string]*Schema {
	if len(refs) == 0 {
		return nil
	}
	out := make(map[string]*Schema, len(refs))
	for _, name := range slices.Sorted(maps.Keys(refs)) { // in order, so that definitions get the same names each time
		r := refs[name]
		if left != nil && d.isReadOnly(r, at) {
			left[name] = true
			continue
		}
		if out[name] = d.ref(r, at); out[name] == nil {
			out[name] = &Schema{}
		}
	}
	return out
}

func (d *definitions) isReadOnly(r *openapi3.SchemaRef, at *document) bool {
	if r == nil || r.Ref == "" {
		return r != nil && r.Value != nil && r.Value.ReadOnly
	}
	p, err := d.settle(at, r.Ref)
	if err != nil {
		return false // said where it is referred to
	}
	key := p.String()
	known, ok := d.readOnly[key]
	if !ok {
		s, err := read[struct {
			ReadOnly bool `json:"readOnly"`
		}](p)
		known = err == nil && s.ReadOnly
		d.readOnly[key] = known
	}
	return known
}

// bound reads an exclusive bound: a number since OpenAPI 3.1, and before that a word about the inclusive one.
func bound(e openapi3.ExclusiveBound, inclusive *float64) (exclusive, stays *float64) {
	switch {
	case e.Value != nil:
		return e.Value, inclusive
	case e.Bool != nil && *e.Bool:
		return inclusive, nil
	}
	return nil, inclusive
}

func literal(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil // it came from JSON
	}
	return raw
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// clip shortens a text to so many characters, at a space where there is one nearby.
func clip(text string, most int) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "?"))
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	cut := string([]rune(text)[:most-1])
	if i := strings.LastIndexByte(cut, ' '); i > len(cut)*3/4 {
		cut = cut[:i]
	}
	return cut + "…"
}

// shortHash is eight hex digits that a text always has.
func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// slug writes a text with letters and digits of ASCII and what else is allowed, at most so many of them, and an
// underscore for all the rest.
func slug(text string, most int, also string) string {
	var b []byte
	for _, r := range text {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(also, r) {
			b = append(b, byte(r))
		} else if len(b) > 0 && b[len(b)-1] != '_' {
			b = append(b, '_')
		}
		if len(b) > most {
			break
		}
	}
	return strings.Trim(string(b[:min(len(b), most)]), "_")
}

// Warning is something about a document that whoever imports it should know.
type Warning struct {
	Operation string `json:"operation,omitempty"` // its operationId, or method and path
	Text      string `json:"text"`
}

func (w Warning) String() string {
	if w.Operation == "" {
		return w.Text
	}
	return fmt.Sprintf("%s: %s", w.Operation, w.Text)
}
