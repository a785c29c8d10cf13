package github

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// param is one argument of a tool: what a model is told of it, and how it is read. Both are said in one place, so that
// a schema cannot promise what the parser refuses.
type param struct {
	name    string
	about   string
	schema  string   // JSON Schema of the value
	aliases []string // other spellings that models use
	read    func(*arguments, json.RawMessage) error
}

// parser reads a value that will be used in a request. Its errors name the argument.
type parser[T any] func(name string, raw json.RawMessage) (T, error)

// of makes a param that is kept in a field.
func of[T any](name, schema, about string, field func(*arguments) *T, parse parser[T]) param {
	return param{name: name, schema: schema, about: about, read: func(a *arguments, raw json.RawMessage) (err error) {
		*field(a), err = parse(name, raw)
		return err
	}}
}

// also adds spellings.
func (p param) also(aliases ...string) param {
	p.aliases = append(slices.Clone(p.aliases), aliases...)
	return p
}

// told replaces what a model is told.
func (p param) told(about string) param {
	p.about = about
	return p
}

// parse reads an argument object. Unknown arguments are refused by name (github-mcp-server#364): one that were ignored
// could be the one that the model meant to be careful with.
func parse(raw json.RawMessage, required, optional []param) (arguments, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return arguments{}, problem.New(problem.Invalid, "the arguments are not a JSON object")
	}
	a := arguments{given: map[string]bool{}}
	all := append(slices.Clone(required), optional...)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(all, func(p param) bool { return p.name == name })
		if i < 0 {
			i = slices.IndexFunc(all, func(p param) bool { return slices.Contains(p.aliases, name) })
		}
		switch {
		case i < 0:
			return arguments{}, problem.New(problem.Invalid, "there is no argument %.60q; there are %s", name, names(all))
		case a.given[all[i].name]:
			return arguments{}, problem.New(problem.Invalid, "argument %s is given twice", all[i].name)
		case i >= len(required) && string(given[name]) == "null":
			continue // how many models leave something out
		}
		if err := all[i].read(&a, given[name]); err != nil {
			return arguments{}, err
		}
		a.given[all[i].name] = true
	}
	for _, p := range required {
		if !a.given[p.name] {
			return arguments{}, problem.New(problem.Invalid, "argument %s is missing", p.name)
		}
	}
	return a, nil
}

func names(all []param) string {
	if len(all) == 0 {
		return "none"
	}
	out := make([]string, len(all))
	for i, p := range all {
		out[i] = p.name
	}
	return strings.Join(out, ", ")
}

// schemaOf is the JSON Schema of a tool's arguments, in the order in which they are listed.
func schemaOf(required, optional []param) json.RawMessage {
	var b strings.Builder
	b.WriteString(`{"type":"object","properties":{`)
	for i, p := range append(slices.Clone(required), optional...) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoted(p.name) + ":")
		if p.about == "" {
			b.WriteString(p.schema)
		} else {
			b.WriteString(strings.TrimSuffix(p.schema, "}") + `,"description":` + quoted(p.about) + "}")
		}
	}
	b.WriteString(`},`)
	if len(required) > 0 {
		b.WriteString(`"required":[`)
		for i, p := range required {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quoted(p.name))
		}
		b.WriteString(`],`)
	}
	b.WriteString(`"additionalProperties":false}`)
	return json.RawMessage(b.String())
}

// quoted is text as JSON.
func quoted(s string) string {
	raw, _ := json.Marshal(s) // text always marshals
	return string(raw)
}
