package apipackage

import (
	"strconv"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// pair is one name and value of a query or form, not escaped yet.
type pair struct {
	name, value string
	joined      bool // value is escaped already, with separators between its parts
}

// styled writes a parameter of a path or header, escaped for its place by esc.
func styled(p Parameter, v value, esc func(string) string) (string, error) {
	if p.JSON {
		return esc(string(v.appendJSON(nil))), nil
	}
	name := escape(p.Name, unreserved)
	words, err := words(p.Name, v, p.Explode, esc)
	if err != nil {
		return "", err
	}
	exploded := p.Explode && !v.single()
	switch p.Style {
	case Label:
		separator := ","
		if exploded {
			separator = "."
		}
		return "." + strings.Join(words, separator), nil
	case Matrix:
		switch {
		case v.single() && v.word() == "":
			return ";" + name, nil
		case exploded && v.kind == array:
			return ";" + name + "=" + strings.Join(words, ";"+name+"="), nil
		case exploded:
			return ";" + strings.Join(words, ";"), nil
		}
		return ";" + name + "=" + strings.Join(words, ","), nil
	}
	return strings.Join(words, ","), nil
}

// words takes a value apart: an array into its items; an object into names and values in turn or, exploded, into
// name=value.
func words(name string, v value, explode bool, esc func(string) string) ([]string, error) {
	var out []string
	switch v.kind {
	case array:
		for _, item := range v.items {
			if !item.single() {
				return nil, nested(name)
			}
			out = append(out, esc(item.word()))
		}
	case object:
		for _, m := range v.members {
			switch {
			case !m.single():
				return nil, nested(name)
			case explode:
				out = append(out, esc(m.name)+"="+esc(m.word()))
			default:
				out = append(out, esc(m.name), esc(m.word()))
			}
		}
	default:
		return []string{esc(v.word())}, nil
	}
	if len(out) == 0 {
		out = []string{""}
	}
	return out, nil
}

func nested(name string) error {
	return problem.New(problem.Invalid, "argument %s: the API takes a list or an object of single values there, not nested ones", name)
}

// pairs writes a value of a query or form. Of an exploded object every member is a name of its own.
func pairs(name string, style Style, explode bool, v value, esc func(string) string) ([]pair, error) {
	if style == DeepObject {
		return deep(nil, name, v)
	}
	if v.single() {
		return []pair{{name: name, value: v.word()}}, nil
	}
	if v.kind == array && len(v.items) == 0 || v.kind == object && len(v.members) == 0 {
		return nil, nil // there is no way to say that it is empty
	}
	if !explode {
		list, err := words(name, v, false, esc)
		separator := map[Style]string{Form: ",", SpaceDelimited: "%20", PipeDelimited: "%7C"}[style]
		return []pair{{name: name, value: strings.Join(list, separator), joined: true}}, err
	}
	var out []pair
	for _, item := range v.items {
		if !item.single() {
			return nil, nested(name)
		}
		out = append(out, pair{name: name, value: item.word()})
	}
	for _, m := range v.members {
		if !m.single() {
			return nil, nested(name)
		}
		out = append(out, pair{name: m.name, value: m.word()})
	}
	return out, nil
}

// deep writes a nested value with its path in brackets, and an array's items by number: a[b][0][c]=1.
func deep(out []pair, name string, v value) ([]pair, error) {
	var err error
	for _, m := range v.members {
		if strings.ContainsAny(m.name, "[]") {
			return nil, problem.New(problem.Invalid, "argument %s: the name %.60q cannot be written between brackets", name, m.name)
		}
		if out, err = deep(out, name+"["+m.name+"]", m.value); err != nil {
			return nil, err
		}
	}
	for i, item := range v.items {
		if out, err = deep(out, name+"["+strconv.Itoa(i)+"]", item); err != nil {
			return nil, err
		}
	}
	if v.single() {
		out = append(out, pair{name: name, value: v.word()})
	}
	return out, nil
}
