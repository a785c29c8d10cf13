package declare

import (
	"slices"
	"strings"
)

// printer writes one schema's types, once.
type printer struct {
	root  *value
	docs  bool
	depth int // what lies deeper is not said
	most  int // of an object's optional properties
	left  int // schemas that may still be written; then everything is unknown

	uses  map[string]int    // how often a reference is written
	named map[string]string // reference to the text of its type
	order []string          // the references that have one
}

// maxWritten bounds the work on one schema.
const maxWritten = 5_000

// typ is a type's text. One that is loose needs parentheses inside another.
type typ struct {
	text  string
	loose bool
}

var (
	unknown = typ{text: "unknown"}
	never   = typ{text: "never"}
	record  = typ{text: "Record<string, unknown>"}
	null    = typ{text: "null"}
)

// write gives the type of a schema.
func (p *printer) write(v *value, depth, indent int) typ {
	if p.left--; p.left < 0 {
		return unknown
	}
	switch {
	case v.is('f'):
		return never
	case !v.is('{'):
		return unknown
	}
	var all []typ
	if ref := v.get("$ref"); ref != nil {
		all = append(all, p.refer(ref, depth, indent))
	}
	switch one, many := v.get("const"), v.get("enum"); {
	case one != nil:
		all = append(all, literals([]*value{one}))
	case many.is('['):
		all = append(all, literals(many.items))
	default:
		all = append(all, p.typed(v, depth, indent))
	}
	for _, part := range v.get("allOf").list() {
		all = append(all, p.write(part, depth, indent))
	}
	for _, word := range []string{"oneOf", "anyOf"} {
		if choices := v.get(word).list(); len(choices) > 0 {
			var any []typ
			for _, c := range choices {
				any = append(any, p.write(c, depth, indent))
			}
			all = append(all, union(any))
		}
	}
	out := both(all)
	if v.get("nullable").is('t') {
		out = union([]typ{out, null})
	}
	return out
}

// typed is what a schema's type and the words that belong to it say.
func (p *printer) typed(v *value, depth, indent int) typ {
	types := v.get("type").words()
	if v.get("type") == nil {
		switch {
		case v.get("properties").is('{') || v.get("additionalProperties").is('{'):
			types = []string{"object"}
		case v.get("items") != nil || v.get("prefixItems") != nil:
			types = []string{"array"}
		}
	}
	if len(types) == 0 || len(types) > 8 {
		return unknown
	}
	var any []typ
	for _, t := range types {
		switch t {
		case "string", "boolean", "null":
			any = append(any, typ{text: t})
		case "number", "integer":
			any = append(any, typ{text: "number"})
		case "object":
			any = append(any, p.object(v, depth, indent))
		case "array":
			any = append(any, p.array(v, depth, indent))
		default:
			return unknown
		}
	}
	return union(any)
}

func (p *printer) array(v *value, depth, indent int) typ {
	fixed := v.get("prefixItems").list()
	if fixed == nil {
		fixed = v.get("items").list() // before draft 2020-12
	}
	if depth == 0 || len(fixed) > 0 || !v.get("items").is('{') {
		return typ{text: "unknown[]"}
	}
	item := p.write(v.get("items"), depth-1, indent)
	if item.loose {
		item.text = "(" + item.text + ")"
	}
	return typ{text: item.text + "[]"}
}

// maxName is the most bytes of an argument's name that is shown: one that is longer is not what anybody writes.
const maxName = 128

func (p *printer) object(v *value, depth, indent int) typ {
	properties, more := v.get("properties"), v.get("additionalProperties")
	required := v.get("required").words()
	if len(required) > maxCompared {
		required = required[:maxCompared]
	}
	open := more != nil && !more.is('f') || v.get("patternProperties") != nil
	if !properties.is('{') || len(properties.members) == 0 {
		switch {
		case depth > 0 && more.is('{') && len(more.members) > 0:
			if of := p.write(more, depth-1, indent); len(required) == 0 {
				return typ{text: "Record<string, " + of.text + ">"}
			}
		case more.is('f') && len(required) == 0:
			return typ{text: "{}"}
		}
		if len(required) == 0 {
			return record
		}
	}
	if depth == 0 {
		return record
	}
	type line struct{ doc, text string }
	var lines []line
	seen := map[string]bool{}
	documented, optional := false, 0
	for _, m := range properties.each() {
		if seen[m.name] {
			continue
		}
		seen[m.name] = true
		must := slices.Contains(required, m.name)
		if !must {
			if optional++; optional > p.most {
				open = true
				continue
			}
		}
		if len(m.name) > maxName || len(lines) == maxCompared {
			open = true
			continue
		}
		l := line{text: key(m.name) + "?: "}
		if must {
			l.text = key(m.name) + ": "
		}
		if p.docs {
			l.doc = comment(about(m.value), 2*maxArgDoc)
			documented = documented || l.doc != ""
		}
		l.text += p.write(m.value, depth-1, indent+1).text
		lines = append(lines, l)
	}
	for _, name := range required {
		if !seen[name] && len(name) <= maxName && len(lines) < maxCompared {
			seen[name] = true
			lines = append(lines, line{text: key(name) + ": unknown"})
		}
	}
	if open {
		lines = append(lines, line{text: "[key: string]: unknown"})
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, l := range lines {
		switch {
		case documented:
			b.WriteString("\n" + strings.Repeat(step, indent+1) + l.doc)
		case i > 0:
			b.WriteString("; ")
		}
		b.WriteString(l.text)
	}
	if documented {
		b.WriteString("\n" + strings.Repeat(step, indent))
	}
	b.WriteByte('}')
	return typ{text: b.String()}
}

// step is one level of indentation.
const step = " "

// Most values, and bytes of them, that are listed one by one.
const (
	maxLiterals     = 60
	maxLiteralBytes = 600
)

// literals is the type of the values that are possible. Of too many, or others than scalars, it says only what they are.
func literals(values []*value) typ {
	var exact, wide []typ
	bytes := 0
	for _, v := range values {
		bytes += len(v.text) + 5
		exact = append(exact, typ{text: literal(v)})
		switch v.kind {
		case '"':
			wide = append(wide, typ{text: "string"})
		case '0':
			wide = append(wide, typ{text: "number"})
		case 't', 'f':
			wide = append(wide, typ{text: "boolean"})
		case 'n':
			wide = append(wide, null)
		default:
			return unknown
		}
	}
	if len(values) > maxLiterals || bytes > maxLiteralBytes {
		return union(wide)
	}
	return union(exact)
}

// union is what is one of several; both is what is all of them. Neither says twice what it says once.
func union(any []typ) typ {
	any = unlike(any)
	if slices.Contains(any, unknown) {
		return unknown
	}
	if len(any) > 1 {
		any = slices.DeleteFunc(any, func(t typ) bool { return t == never })
	}
	return joined(any, " | ", never)
}

func both(all []typ) typ {
	all = slices.DeleteFunc(unlike(all), func(t typ) bool { return t == unknown })
	if slices.Contains(all, never) {
		return never
	}
	if len(all) > 1 { // any object, of which more is said beside
		all = slices.DeleteFunc(all, func(t typ) bool { return t == record })
	}
	return joined(all, " & ", unknown)
}

func unlike(types []typ) (out []typ) {
	for _, t := range types {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

func joined(types []typ, by string, none typ) typ {
	switch len(types) {
	case 0:
		return none
	case 1:
		return types[0]
	}
	var texts []string
	for _, t := range types {
		if t.loose {
			t.text = "(" + t.text + ")"
		}
		texts = append(texts, t.text)
	}
	return typ{text: strings.Join(texts, by), loose: true}
}
