package apipackage

import (
	"bytes"
	"encoding/json"

	"github.com/execwarden/execwarden/libs/problem"
)

// kind is what a JSON value is.
type kind byte

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

// value is a JSON value as it was written: numbers keep their digits and objects their order, since both are seen on the
// wire.
type value struct {
	kind    kind
	scalar  string // a number's or boolean's text, or a text
	items   []value
	members []member
}

type member struct {
	name string
	value
}

// maxArgDepth bounds how deep arguments nest.
const maxArgDepth = 64

// parseArguments reads an argument object.
func parseArguments(raw json.RawMessage) ([]member, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := readValue(dec, 0)
	switch {
	case err != nil:
		return nil, err
	case v.kind == null:
		return nil, nil
	case v.kind != object || dec.More():
		return nil, problem.New(problem.Invalid, "the arguments are not a JSON object")
	}
	return v.members, nil
}

func readValue(dec *json.Decoder, depth int) (value, error) {
	t, err := dec.Token()
	if err != nil {
		return value{}, problem.Wrap(err, problem.Invalid, "the arguments are not valid JSON")
	}
	if depth > maxArgDepth {
		return value{}, problem.New(problem.Invalid, "the arguments nest deeper than %d", maxArgDepth)
	}
	switch t := t.(type) {
	case nil:
		return value{}, nil
	case bool:
		if t {
			return value{kind: boolean, scalar: "true"}, nil
		}
		return value{kind: boolean, scalar: "false"}, nil
	case json.Number:
		return value{kind: number, scalar: t.String()}, nil
	case string:
		return value{kind: text, scalar: t}, nil
	}
	v := value{kind: array}
	if t == json.Delim('{') {
		v.kind = object
	}
	seen := map[string]bool{}
	for dec.More() {
		var m member
		if v.kind == object {
			key, err := dec.Token()
			if err != nil {
				return value{}, problem.Wrap(err, problem.Invalid, "the arguments are not valid JSON")
			}
			m.name, _ = key.(string) // the decoder lets nothing else be a key
			if seen[m.name] {
				return value{}, problem.New(problem.Invalid, "the arguments name %.60q twice", m.name)
			}
			seen[m.name] = true
		}
		if m.value, err = readValue(dec, depth+1); err != nil {
			return value{}, err
		}
		if v.kind == object {
			v.members = append(v.members, m)
		} else {
			v.items = append(v.items, m.value)
		}
	}
	if _, err := dec.Token(); err != nil { // the closing one
		return value{}, problem.Wrap(err, problem.Invalid, "the arguments are not valid JSON")
	}
	return v, nil
}

// appendJSON writes a value as it was read.
func (v value) appendJSON(b []byte) []byte {
	switch v.kind {
	case null:
		return append(b, "null"...)
	case boolean, number:
		return append(b, v.scalar...)
	case text:
		return appendText(b, v.scalar)
	case array:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, m := range v.members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, m.name), ':')
		b = m.value.appendJSON(b)
	}
	return append(b, '}')
}

// appendText writes a JSON string, without the escapes that only HTML needs.
func appendText(b []byte, s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil { // a string is always written
		return append(b, `""`...)
	}
	return append(b, bytes.TrimSuffix(out.Bytes(), []byte{'\n'})...)
}

// plain gives a value in the types that the validator works on.
func (v value) plain() any {
	switch v.kind {
	case null:
		return nil
	case boolean:
		return v.scalar == "true"
	case number:
		return json.Number(v.scalar)
	case text:
		return v.scalar
	case array:
		out := make([]any, len(v.items))
		for i, item := range v.items {
			out[i] = item.plain()
		}
		return out
	}
	out := make(map[string]any, len(v.members))
	for _, m := range v.members {
		out[m.name] = m.value.plain()
	}
	return out
}

// single says whether a value is neither an array nor an object.
func (v value) single() bool { return v.kind != array && v.kind != object }

// word is a single value as it is written outside of JSON.
func (v value) word() string { return v.scalar } // null is empty
