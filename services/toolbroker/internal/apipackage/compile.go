package apipackage

import (
	"cmp"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// compiler makes operations of what a document says.
type compiler struct {
	manifest Manifest
	defs     *definitions
	secrets  map[string]bool                  // parameters that carry a credential, as location and name, lower case
	bodies   map[string]*openapi3.RequestBody // that are shared, by place
	warn     func(format string, args ...any)
}

// found is an operation in a document.
type found struct {
	method, path string
	id           string
	tags         []string
	item         place // its path item
	at           place
}

func (f found) route() string { return f.method + " " + f.path }
func (f found) label() string { return cmp.Or(f.id, f.route()) }

// operation compiles one operation. An error means that it cannot be called, and is left out.
func (c *compiler) operation(f found) (Operation, error) {
	op, err := read[openapi3.Operation](f.at)
	if err != nil {
		return Operation{}, err
	}
	o := Operation{ID: f.id, Method: f.method, Tags: f.tags, Accept: c.accept(op, f.at.doc)}
	if o.Path, err = parsePath(f.path); err != nil {
		return Operation{}, err
	}
	own := overrideOf(c.manifest, &o)
	o.Description = clip(cmp.Or(own.Description, describe(op, f)), maxToolDescription)
	if err := o.classify(own); err != nil {
		return Operation{}, err
	}
	args, err := c.parameters(&o, op, f)
	if err != nil {
		return Operation{}, err
	}
	fields, err := c.body(&o, op, own, f)
	if err != nil {
		return Operation{}, err
	}
	o.Input = nameArguments(append(args, fields...))
	return o, nil
}

func describe(op *openapi3.Operation, f found) string {
	text := strings.TrimSpace(op.Summary)
	if d := strings.TrimSpace(op.Description); d != "" && d != text {
		text = strings.TrimSpace(text + "\n\n" + d)
	}
	if op.Deprecated {
		text = "Deprecated. " + text
	}
	return cmp.Or(text, f.route())
}

// classify says what a call of an operation may do. What only reads must be so by its method or by a person's word.
func (o *Operation) classify(own Override) error {
	reads := o.Method == "GET" || o.Method == "HEAD"
	o.Writes = !reads
	if own.Effect == connection.Pure {
		o.Writes = false
	}
	if own.Writes != nil {
		o.Writes = *own.Writes
	}
	o.Effect = connection.Opaque
	if !o.Writes {
		o.Effect = connection.Pure
	}
	o.Effect = cmp.Or(own.Effect, o.Effect)
	o.Probe = own.Probe // the operation that it names; its tool's name is put here when all have one
	return nil
}

// parsePath takes a path template apart.
func parsePath(path string) ([]Part, error) {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#\\") {
		return nil, problem.New(problem.Invalid, "path %.200q cannot be called: it has to begin with / and have no ? and #", path)
	}
	var parts []Part
	text := func(s string) {
		if s != "" {
			parts = append(parts, Part{Text: escape(s, pathText)})
		}
	}
	rest := path
	for {
		before, after, ok := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return nil, problem.New(problem.Invalid, "path %.200q has a } without a {", path)
		}
		text(before)
		if !ok {
			break
		}
		name, after, ok := strings.Cut(after, "}")
		if !ok || name == "" || strings.ContainsAny(name, "{/") {
			return nil, problem.New(problem.Invalid, "path %.200q has a parameter without a name", path)
		}
		parts = append(parts, Part{Param: strings.TrimRight(name, "*+")})
		rest = after
	}
	var fixed strings.Builder
	for _, p := range parts {
		fixed.WriteString(cmp.Or(p.Text, "x"))
	}
	if climbs(fixed.String()) {
		return nil, problem.New(problem.Denied, "path %.200q leads out of the API", path)
	}
	return parts, nil
}

// parameters compiles the parameters of an operation, and those of its path that it does not redefine.
func (c *compiler) parameters(o *Operation, op *openapi3.Operation, f found) ([]argument, error) {
	item, err := read[struct {
		Parameters openapi3.Parameters `json:"parameters"`
	}](f.item)
	if err != nil {
		return nil, err
	}
	type located struct {
		*openapi3.Parameter
		doc *document
	}
	var all []located
	seen := map[string]bool{}
	collect := func(refs openapi3.Parameters, doc *document) {
		for _, r := range refs {
			p, at, err := c.parameter(r, doc)
			if err != nil {
				c.warn("a parameter is left out: %s", problem.DetailOf(err).Message)
				continue
			}
			if key := p.In + " " + p.Name; !seen[key] {
				seen[key] = true
				all = append(all, located{p, at})
			}
		}
	}
	collect(op.Parameters, f.at.doc)
	collect(item.Parameters, f.item.doc)
	for _, part := range o.Path {
		if part.Param != "" && !seen["path "+part.Param] {
			seen["path "+part.Param] = true
			c.warn("parameter %q of the path is not described", part.Param)
			all = append(all, located{&openapi3.Parameter{Name: part.Param, In: "path", Schema: &openapi3.SchemaRef{Value: openapi3.NewStringSchema()}}, f.at.doc})
		}
	}
	var args []argument
	o.Parameters = make([]Parameter, 0, len(all)) // so that the addresses stay
	for _, p := range all {
		switch use, err := c.usable(p.Parameter, o); {
		case err != nil:
			return nil, err
		case !use:
			continue
		}
		made, schema := c.fill(p.Parameter, p.doc)
		o.Parameters = append(o.Parameters, made)
		kept := &o.Parameters[len(o.Parameters)-1]
		args = append(args, argument{name: made.Name, in: string(made.In), schema: schema, must: made.Required, set: func(arg string) { kept.Arg = arg }})
	}
	if len(o.Parameters) == 0 {
		o.Parameters = nil
	}
	return args, nil
}

func (c *compiler) parameter(r *openapi3.ParameterRef, doc *document) (*openapi3.Parameter, *document, error) {
	switch {
	case r == nil:
		return nil, nil, problem.New(problem.Invalid, "it is null")
	case r.Ref != "":
		p, err := c.defs.settle(doc, r.Ref)
		if err != nil {
			return nil, nil, err
		}
		v, err := read[openapi3.Parameter](p)
		return v, p.doc, err
	case r.Value == nil:
		return nil, nil, problem.New(problem.Invalid, "it is empty")
	}
	return r.Value, doc, nil
}

// usable says whether a parameter becomes an argument. Credentials do not, nor what belongs to the connection.
func (c *compiler) usable(p *openapi3.Parameter, o *Operation) (bool, error) {
	name := strings.ToLower(p.Name)
	switch {
	case p.Name == "":
		c.warn("a parameter without a name is left out")
		return false, nil
	case c.secrets[p.In+" "+name]:
		return false, nil
	}
	switch Location(p.In) {
	case InPath:
		if !slices.ContainsFunc(o.Path, func(part Part) bool { return part.Param == p.Name }) {
			c.warn("parameter %q is not in the path, and is left out", p.Name)
			return false, nil
		}
		return true, nil
	case InQuery:
		return true, nil
	case InHeader:
		if settable(p.Name) {
			return true, nil
		}
		if p.Required && name != "accept" && name != "content-type" {
			c.warn("header %q is not one that an argument may set, and is left out", p.Name)
		}
		return false, nil
	case "cookie":
		if p.Required {
			return false, problem.New(problem.Invalid, "it needs the cookie %q, and cookies are not sent", p.Name)
		}
		c.warn("cookie %q is left out", p.Name)
		return false, nil
	}
	c.warn("parameter %q goes to %q, which is no place, and is left out", p.Name, p.In)
	return false, nil
}

var styles = map[Location][]Style{ // the first is the default
	InPath:   {Simple, Label, Matrix},
	InQuery:  {Form, SpaceDelimited, PipeDelimited, DeepObject},
	InHeader: {Simple},
}

func (c *compiler) fill(p *openapi3.Parameter, doc *document) (Parameter, *Schema) {
	out := Parameter{Name: p.Name, In: Location(p.In), Style: Style(p.Style), Required: p.Required || p.In == "path", Reserved: p.AllowReserved && p.In == "query"}
	switch fits := styles[out.In]; {
	case p.Style == "":
		out.Style = fits[0]
	case !slices.Contains(fits, out.Style):
		c.warn("parameter %q cannot have style %q in the %s, and gets %s", p.Name, p.Style, p.In, fits[0])
		out.Style = fits[0]
	}
	out.Explode = out.Style == Form // unless it says otherwise: the default depends on the style (fastmcp#5060)
	if p.Explode != nil {
		out.Explode = *p.Explode
	}
	if out.In == InPath {
		out.MultiSegment = extension(p.Extensions, "x-multi-segment")
	}
	schema := c.defs.ref(p.Schema, doc)
	if types := sortedKeys(p.Content); len(types) > 0 { // there is only one
		out.JSON = kindOf(types[0]) == JSONBody
		if m := p.Content[types[0]]; m != nil {
			schema = c.defs.ref(m.Schema, doc)
		}
	}
	if schema == nil {
		schema = &Schema{}
	}
	if text := clip(p.Description, maxArgDescription); text != "" && schema.Always == nil {
		schema = &Schema{Description: text, AllOf: []*Schema{schema}}
		if inner := schema.AllOf[0]; inner.Ref == "" {
			inner.Description = text
			schema = inner
		}
	}
	return out, schema
}

func extension(all map[string]any, name string) bool {
	switch v := all[name].(type) {
	case bool:
		return v
	case string:
		b, err := strconv.ParseBool(v)
		return err == nil && b
	}
	return false
}

// accept is what to ask for: JSON where the operation can answer so.
func (c *compiler) accept(op *openapi3.Operation, doc *document) string {
	if op.Responses == nil {
		return "application/json"
	}
	var types []string
	for _, status := range sortedKeys(op.Responses.Map()) {
		if status != "default" && !strings.HasPrefix(status, "2") {
			continue
		}
		r := op.Responses.Map()[status]
		if r == nil {
			continue
		}
		v := r.Value
		if r.Ref != "" {
			p, err := c.defs.settle(doc, r.Ref)
			if err != nil {
				continue // nothing is known of the answer; that is no reason not to ask
			}
			content, err := read[struct {
				Content map[string]struct{} `json:"content"`
			}](p)
			if err == nil {
				types = append(types, sortedKeys(content.Content)...)
			}
			continue
		}
		if v != nil {
			types = append(types, sortedKeys(v.Content)...)
		}
	}
	best := ""
	for _, t := range types {
		if base, _, err := mime.ParseMediaType(t); err != nil || base == "*/*" {
			continue
		}
		if t == "application/json" {
			return t
		}
		if best == "" || kindOf(best) != JSONBody && kindOf(t) == JSONBody {
			best = t
		}
	}
	return cmp.Or(best, "application/json")
}
