package declare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Written is the declarations of an agent's tools.
type Written struct {
	Text  string // TypeScript; "" when there is no tool
	Tools int    // that there are
	Bare  int    // of these, by their names only
	Left  int    // of these, not at all
}

// level is how much is said of a tool.
type level int

const (
	left level = iota
	bare
	plain
	full
)

// The text around the tools.
const (
	head  = "declare const tools: {\n"
	foot  = "}\n"
	call  = "type Call = (args?: any) => Promise<any>\n"
	rest  = step + "// and %d more tools of %d other connections\n"
	more  = step + step + "// and %d more tools\n"
	frame = len(head) + len(foot) + len(call) + len(rest) + 20
)

// Write declares tools in at most so many bytes; frame and a little are the least that is any use. What does not fit
// is said without comments, then by names, then by number. Small connections come first: a large one takes what is
// left, not theirs. The same tools give the same text, in whatever order they come.
func Write(tools []*Tool, most int) Written { return write(tools, most, "") }

func write(tools []*Tool, most int, lookups string) Written {
	tools = slices.Clone(tools)
	slices.SortFunc(tools, func(a, b *Tool) int {
		return cmp.Or(cmp.Compare(a.connection, b.connection), cmp.Compare(a.name, b.name))
	})
	out := Written{Tools: len(tools)}
	if len(tools) == 0 {
		return out
	}
	var groups []*group
	for _, t := range tools {
		if n := len(groups); n == 0 || groups[n-1].name != t.connection {
			groups = append(groups, &group{name: t.connection, types: map[string]bool{}})
		}
		g := groups[len(groups)-1]
		g.tools, g.levels = append(g.tools, t), append(g.levels, left)
	}
	bySize := slices.Clone(groups)
	slices.SortStableFunc(bySize, func(a, b *group) int { return cmp.Compare(a.size(), b.size()) })
	spare := most - frame
	for i, g := range bySize {
		spare -= g.fit(spare / (len(bySize) - i))
	}
	out.Text = text(groups, &out, lookups)
	return out
}

// group is a connection's tools, and how much is said of each.
type group struct {
	name   string
	tools  []*Tool
	levels []level
	types  map[string]bool // that are paid for
}

// around is what a connection takes beside its tools.
func (g *group) around() int {
	return len(key(g.name)) + len(" : {\n }\n") + len(more) + 20 + len("   } & Record<, Call>\n")
}

func (g *group) size() int {
	sum, seen := g.around(), map[string]bool{}
	for _, t := range g.tools {
		sum += t.cost(full)
		for _, n := range t.full.types {
			if !seen[n.key] {
				seen[n.key] = true
				sum += n.cost()
			}
		}
	}
	return sum
}

func (t *Tool) at(l level) *variant {
	if l == full {
		return &t.full
	}
	return &t.plain
}

// cost is the most bytes that a tool takes, without its types. A key is longer than the name that takes its place.
func (t *Tool) cost(l level) int {
	switch l {
	case left:
		return 0
	case bare:
		return len(t.bare) + len(" | ")
	}
	return len(t.at(l).text) + 2*len(step) + len("\n")
}

func (n named) cost() int { return len(n.text) + len("type  = \n") + maxTypeName + 8 }

// fit says as much of the tools as so many bytes hold, and gives what it took: first a little of all, then more of
// those of which it takes the least.
func (g *group) fit(most int) (took int) {
	if size := g.size(); size <= most {
		for i := range g.levels {
			g.levels[i] = full
		}
		return size
	}
	took = g.around()
	for _, l := range []level{bare, plain, full} {
		order := make([]int, len(g.tools))
		for i := range order {
			order[i] = i
		}
		if l != bare { // names go by the alphabet
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g.tools[a].cost(l), g.tools[b].cost(l)) })
		}
		for _, i := range order {
			t := g.tools[i]
			price := t.cost(l) - t.cost(g.levels[i])
			var types []named
			if l != bare {
				for _, n := range t.at(l).types {
					if !g.types[n.key] {
						types, price = append(types, n), price+n.cost()
					}
				}
			}
			if g.levels[i] != l-1 || took+price > most {
				continue
			}
			took += price
			g.levels[i] = l
			for _, n := range types {
				g.types[n.key] = true
			}
		}
	}
	if !slices.ContainsFunc(g.levels, func(l level) bool { return l > left }) {
		return 0
	}
	return took
}

func text(groups []*group, out *Written, lookups string) string {
	names := newNaming()
	var body strings.Builder
	others, unsaid := 0, 0
	for _, g := range groups {
		var said []string
		var bares []string
		gone := 0
		for i, t := range g.tools {
			switch l := g.levels[i]; l {
			case left:
				gone++
			case bare:
				bares = append(bares, t.bare)
			default:
				said = append(said, step+step+names.in(t.at(l).text, t.at(l).types)+"\n")
			}
		}
		out.Bare, out.Left = out.Bare+len(bares), out.Left+gone
		if gone == len(g.tools) {
			others, unsaid = others+1, unsaid+gone
			continue
		}
		body.WriteString(step + key(g.name) + ": ")
		if len(said) > 0 || gone > 0 {
			body.WriteString("{\n" + strings.Join(said, ""))
			if gone > 0 {
				fmt.Fprintf(&body, more, gone)
			}
			body.WriteString(step + "}")
			if len(bares) > 0 {
				body.WriteString(" & ")
			}
		}
		if len(bares) > 0 {
			body.WriteString("Record<" + strings.Join(bares, " | ") + ", Call>")
		}
		body.WriteString("\n")
	}
	if unsaid > 0 {
		fmt.Fprintf(&body, rest, unsaid, others)
	}
	before := names.types()
	if out.Bare > 0 {
		before += call
	}
	return before + head + lookups + body.String() + foot
}

// naming gives types their names, in the order in which they are met.
type naming struct {
	of    map[string]string // by key
	taken map[string]bool
	said  []named
}

func newNaming() *naming {
	n := &naming{of: map[string]string{}, taken: map[string]bool{}}
	for _, word := range strings.Fields("Array Boolean Call Date Error Function Map Number Object Promise Record RegExp Response Set String Symbol") {
		n.taken[word] = true // a type of the language, or of ours
	}
	return n
}

// in puts names in the place of keys.
func (n *naming) in(text string, types []named) string {
	parts := strings.Split(text, mark)
	for i := 1; i < len(parts); i += 2 {
		parts[i] = n.name(parts[i], types)
	}
	return strings.Join(parts, "")
}

func (n *naming) name(key string, types []named) string {
	if name, ok := n.of[key]; ok {
		return name
	}
	t := types[slices.IndexFunc(types, func(t named) bool { return t.key == key })]
	name := t.name
	for i := 2; n.taken[name]; i++ {
		name = fmt.Sprint(t.name, i)
	}
	n.of[key], n.taken[name] = name, true
	at := len(n.said)
	n.said = append(n.said, named{name: name})
	n.said[at].text = n.in(t.text, types)
	return name
}

func (n *naming) types() string {
	var b strings.Builder
	for _, t := range n.said {
		b.WriteString("type " + t.name + " = " + t.text + "\n")
	}
	return b.String()
}
