package declare

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/schemas/connection"
)

// The most bytes of one tool's declaration, without its comments and with them. One that is larger is shown less deep.
const (
	maxPlain = 4 << 10
	maxFull  = 12 << 10
)

// Tool is a tool's declaration. It is made once, and holds nothing of the schema.
type Tool struct {
	connection, name string
	bare             string // the name in quotes
	plain            variant
	full             variant // with comments
}

// variant is a declaration, and the types that it mentions.
type variant struct {
	text  string // with the keys of types, between marks
	types []named
}

// named is a type that a declaration mentions. Two with one key are the same.
type named struct {
	key, name, text string
}

// Callable says whether a script reaches a tool by its name: tools.js gives nothing for some, so that a value such as
// tools itself is neither awaited nor written as JSON by calling a tool.
func Callable(full string) bool {
	con, name, ok := strings.Cut(full, ".")
	return ok && con != "" && name != "" && !slices.Contains(silent, con) && !slices.Contains(silent, name)
}

var silent = []string{"then", "toJSON", "constructor", "prototype"}

// New declares a tool of a connection.
func New(of string, t connection.Tool) *Tool {
	root := read(t.Schema)
	uses := map[string]int{}
	root.references(uses)
	in := func(v view, docs bool) (variant, int) {
		p := &printer{root: root, docs: docs, depth: v.depth, most: v.optional, left: maxWritten, uses: uses, named: map[string]string{}}
		return p.declare(t.Name)
	}
	any := variant{text: method(t.Name) + "(args: " + record.text + "): Promise<any>"}
	out := &Tool{connection: of, name: t.Name, bare: quoted(t.Name), plain: any, full: any}
	for _, v := range views {
		plain, size := in(v, false)
		if size > maxPlain {
			continue
		}
		out.plain, out.full = plain, plain
		if full, size := in(v, true); size <= maxFull {
			out.full = full
		}
		break
	}
	if doc := strings.TrimSuffix(comment(firstPart(t.Description), maxToolDoc), " "); doc != "" {
		out.full.text = doc + "\n" + step + step + out.full.text
	}
	return out
}

// view is how much of a schema is shown: how deep, and how many optional arguments of an object.
type view struct{ depth, optional int }

// views are tried in this order until a declaration is small enough.
var views = []view{{12, maxCompared}, {6, maxCompared}, {4, maxCompared}, {3, maxCompared}, {2, maxCompared}, {1, maxCompared}, {1, 40}, {1, 10}}

// declare writes a tool's declaration, and says how many bytes it takes with its types. Of one that is too large it says
// only that.
func (p *printer) declare(tool string) (variant, int) {
	text := method(tool) + "(" + p.arguments() + "): Promise<any>"
	size := len(text)
	for _, t := range p.named {
		size += len(t)
	}
	if size > maxFull {
		return variant{}, size
	}
	types := p.types()
	return variant{text: p.keyed(text, types), types: types}, size
}

// arguments is a tool's parameter list. A tool takes one object.
func (p *printer) arguments() string {
	v := p.root
	t := p.write(v, p.depth, 2)
	switch {
	case t.text == "{}":
		return ""
	case t == unknown, t == never:
		t = record
	}
	for _, word := range []string{"$ref", "allOf", "anyOf", "oneOf"} {
		if v.get(word) != nil {
			return "args: " + t.text
		}
	}
	if len(v.get("required").words()) > 0 {
		return "args: " + t.text
	}
	if v.get("properties").is('{') && len(v.get("properties").members) == 0 && t == record && v.get("additionalProperties") == nil {
		return ""
	}
	return "args?: " + t.text
}

// types names the types by what they say, and all that they lead to: so those of two tools that say the same are one.
func (p *printer) types() (out []named) {
	for _, ref := range p.order {
		leads := map[string]bool{}
		p.reach(ref, leads)
		all := make([]string, 0, len(leads))
		for r := range leads {
			all = append(all, r+mark+p.named[r])
		}
		slices.Sort(all)
		raw, _ := json.Marshal(append(all, ref)) // texts can be written
		sum := sha256.Sum256(raw)
		out = append(out, named{key: hex.EncodeToString(sum[:16]), name: nameOf(ref), text: p.named[ref]})
	}
	for i := range out {
		out[i].text = p.keyed(out[i].text, out)
	}
	return out
}

func (p *printer) reach(ref string, seen map[string]bool) {
	if seen[ref] {
		return
	}
	seen[ref] = true
	for i, part := range strings.Split(p.named[ref], mark) {
		if i%2 == 1 {
			p.reach(part, seen)
		}
	}
}

// keyed puts the keys of types in the place of references.
func (p *printer) keyed(text string, types []named) string {
	parts := strings.Split(text, mark)
	for i := 1; i < len(parts); i += 2 {
		parts[i] = mark + types[slices.Index(p.order, parts[i])].key + mark
	}
	return strings.Join(parts, "")
}
