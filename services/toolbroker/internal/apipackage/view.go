package apipackage

import (
	"encoding/json"
	"math"
	"strings"
)

// View is how much of an operation's input schema is shown and checked. The zero value is all of it.
type View struct {
	Bare  bool `json:"bare,omitempty"`  // nothing is described
	Terse bool `json:"terse,omitempty"` // only the arguments themselves are described
	Depth int  `json:"depth,omitempty"` // what is deeper, inside or by reference, may be anything
}

// views are tried in this order until a tool's schema is small enough.
var views = []View{
	{},
	{Terse: true},
	{Terse: true, Depth: 6},
	{Terse: true, Depth: 4},
	{Terse: true, Depth: 3},
	{Terse: true, Depth: 2},
	{Terse: true, Depth: 1},
	{Bare: true, Depth: 1},
}

// leastNode is about the fewest bytes that a schema takes, with its name.
const leastNode = 8

// fit finds the view in which an operation's schema is small enough. wide says that it is a large one even with nothing
// but the names and types of its arguments, and ok that it can be shown at all.
func (p *Package) fit(o *Operation) (wide, ok bool) {
	for _, o.View = range views {
		if p.smaller(o, maxToolSchema) {
			return false, true
		}
	}
	return true, p.smaller(o, mostToolSchema)
}

func (p *Package) smaller(o *Operation, bytes int) bool {
	v := viewer{defs: p.Definitions, view: o.View, most: bytes / leastNode}
	schema := v.assemble(o.Input)
	if v.nodes > v.most {
		return false // it need not be written to see that
	}
	raw, err := json.Marshal(schema)
	return err == nil && len(raw) <= bytes
}

// inputOf assembles the schema that a tool shows.
func (p *Package) inputOf(o *Operation) *Schema {
	v := viewer{defs: p.Definitions, view: o.View, most: math.MaxInt}
	return v.assemble(o.Input)
}

// viewer copies a schema and the definitions that it refers to, as far as the view wants them.
type viewer struct {
	defs  map[string]*Schema
	view  View
	most  int // nodes, after which the rest is left out
	nodes int
	out   map[string]*Schema
	next  []string // referred to, and not copied yet
}

func (v *viewer) assemble(input *Schema) *Schema {
	v.out = map[string]*Schema{}
	root := v.show(input, 0)
	for hop := 1; len(v.next) > 0 && v.nodes <= v.most; hop++ {
		now := v.next
		v.next = nil
		for _, name := range now {
			switch def := v.defs[name]; {
			case def == nil:
				v.out[name] = &Schema{}
			case v.view.Depth > 0 && hop >= v.view.Depth:
				v.nodes++
				v.out[name] = &Schema{Type: def.Type}
			default:
				v.out[name] = v.show(def, 1)
			}
		}
	}
	if len(v.out) > 0 {
		root.Defs = v.out
	}
	return root
}

// show copies a schema. depth 0 is the object of all arguments, 1 an argument or definition.
func (v *viewer) show(s *Schema, depth int) *Schema {
	if v.nodes++; v.nodes > v.most {
		return &Schema{}
	}
	if v.view.Depth > 0 && depth > v.view.Depth && (s.Properties != nil || s.AllOf != nil || s.AnyOf != nil || s.OneOf != nil || s.Items != nil) {
		return &Schema{Type: s.Type}
	}
	if name, ok := strings.CutPrefix(s.Ref, refPrefix); ok {
		if _, known := v.out[name]; !known {
			v.out[name] = nil
			v.next = append(v.next, name)
		}
	}
	c := s.each(func(child *Schema) *Schema { return v.show(child, depth+1) })
	if v.view.Bare || v.view.Terse && depth > 1 {
		c.Description, c.Default = "", nil
	}
	return c
}

// prune drops the definitions that no operation refers to: those that were only looked at.
func (p *Package) prune() {
	keep := map[string]*Schema{}
	var todo []*Schema
	var walk func(*Schema)
	walk = func(s *Schema) {
		if name, ok := strings.CutPrefix(s.Ref, refPrefix); ok && keep[name] == nil && p.Definitions[name] != nil {
			keep[name] = p.Definitions[name]
			todo = append(todo, keep[name])
		}
		for c := range s.children {
			walk(c)
		}
	}
	for i := range p.Operations {
		walk(p.Operations[i].Input)
	}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		walk(s)
	}
	p.Definitions = keep
}
