package apipackage

import (
	"encoding/json"
	"slices"
	"strings"
)

// shape answers what a schema wants at some place, through the definitions that it refers to.
type shape struct {
	defs map[string]*Schema
}

func (s shape) settle(of *Schema) *Schema {
	for range maxRefs {
		switch {
		case of == nil:
			return nil
		case of.Ref != "":
			of = s.defs[strings.TrimPrefix(of.Ref, refPrefix)]
		case len(of.AllOf) == 1 && len(of.Type) == 0 && of.Properties == nil:
			of = of.AllOf[0] // how a description is put beside a reference
		default:
			return of
		}
	}
	return nil
}

// coerce mends what models often get wrong and what can only be meant one way: a number or boolean written as text, a
// number where a text is wanted, and null for an optional argument that is not there.
func (s shape) coerce(v value, want *Schema) value {
	want = s.settle(want)
	if want == nil || want.AnyOf != nil || want.OneOf != nil {
		return v
	}
	switch v.kind {
	case text:
		t := strings.TrimSpace(v.scalar)
		switch {
		case want.Type.only("integer", "number") && isNumber(t):
			return value{kind: number, scalar: t}
		case want.Type.only("boolean") && (t == "true" || t == "false"):
			return value{kind: boolean, scalar: t}
		}
	case number, boolean:
		if want.Type.only("string") {
			return value{kind: text, scalar: v.scalar}
		}
	case array:
		if want.Items == nil {
			return v
		}
		items := make([]value, len(v.items))
		for i, item := range v.items {
			items[i] = s.coerce(item, want.Items)
		}
		v.items = items
	case object:
		v.members = s.members(v.members, want)
	}
	return v
}

func (s shape) members(given []member, want *Schema) []member {
	out := make([]member, 0, len(given))
	for _, m := range given {
		p := want.Properties[m.name]
		if m.kind == null && p != nil && !s.takesNull(p) && !slices.Contains(want.Required, m.name) {
			continue
		}
		if p != nil {
			m.value = s.coerce(m.value, p)
		}
		out = append(out, m)
	}
	return out
}

func (s shape) takesNull(of *Schema) bool {
	of = s.settle(of)
	switch {
	case of == nil:
		return true
	case len(of.Type) == 0 && len(of.OneOf)+len(of.AnyOf) > 0:
		return slices.ContainsFunc(of.OneOf, s.mayBeNull) || slices.ContainsFunc(of.AnyOf, s.mayBeNull)
	}
	return len(of.Type) == 0 || of.Type.has("null")
}

// mayBeNull asks one level deep: what is deeper still may be.
func (s shape) mayBeNull(of *Schema) bool {
	of = s.settle(of)
	return of == nil || len(of.Type) == 0 || of.Type.has("null")
}

func isNumber(t string) bool {
	return t != "" && (t[0] == '-' || t[0] >= '0' && t[0] <= '9') && json.Valid([]byte(t))
}
