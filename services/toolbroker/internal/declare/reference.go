package declare

import (
	"strings"
)

// mark stands around a reference in a type's text until types have names. It is hidden, so no text holds one.
const mark = "\x00"

// refer is the type of what a reference leads to. A definition that is used once stands in its place. All else has a
// type of its own, written once: a reference that leads back to itself ends there, and none is multiplied.
func (p *printer) refer(ref *value, depth, indent int) typ {
	if !ref.is('"') {
		return unknown
	}
	to := p.root.at(ref.text)
	switch {
	case to == nil || strings.Contains(ref.text, mark):
		return unknown
	case depth == 0:
		return p.typed(to, 0, indent)
	case flat(to), p.uses[ref.text] == 1 && definition(ref.text):
		return p.write(to, depth, indent)
	}
	if _, ok := p.named[ref.text]; !ok {
		p.named[ref.text] = "" // while it is written
		docs := p.docs
		p.docs = false // so that it is the same type with comments and without
		p.named[ref.text] = p.write(to, p.depth, 0).text
		p.docs = docs
		p.order = append(p.order, ref.text)
	}
	return typ{text: mark + ref.text + mark}
}

// definition says whether a reference leads to what is not also written in its own place.
func definition(ref string) bool {
	for _, at := range []string{"#/$defs/", "#/definitions/"} {
		if name, ok := strings.CutPrefix(ref, at); ok {
			return !strings.Contains(name, "/")
		}
	}
	return false
}

// flat says whether a schema is as short as a name for it.
func flat(v *value) bool {
	for _, word := range []string{"$ref", "properties", "items", "prefixItems", "additionalProperties", "allOf", "anyOf", "oneOf"} {
		if v.get(word) != nil {
			return false
		}
	}
	return len(v.get("enum").list()) <= 3
}

// maxTypeName is the most bytes of a type's name before its number.
const maxTypeName = 24

// nameOf is what a reference's type would like to be called.
func nameOf(ref string) string {
	name := ref[strings.LastIndexByte(ref, '/')+1:]
	var b strings.Builder
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			b.WriteRune(r)
		}
		if b.Len() == maxTypeName {
			break
		}
	}
	name = strings.TrimLeft(b.String(), "0123456789")
	if name == "" {
		return "Args"
	}
	// No type of the language is called so, nor a word of it.
	return strings.ToUpper(name[:1]) + name[1:]
}
