package declare

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what is read. A schema over maxSchema says nothing; what lies deeper than maxNested, or behind so many values,
// is unknown.
const (
	maxSchema = 256 << 10 // bytes
	maxNested = 48
	maxValues = 50_000
)

// value is a JSON value, with an object's members in their order: that of a schema's properties is its author's.
type value struct {
	kind    byte // { [ " 0 t f n, and ? for what was not read
	text    string
	members []member
	items   []*value
}

type member struct {
	name string
	*value
}

// unread stands for what is too deep.
var unread = &value{kind: '?'}

// read gives a schema's value, and unread for what is none.
func read(raw json.RawMessage) *value {
	if len(raw) > maxSchema || !json.Valid(raw) {
		return unread
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	left := maxValues
	v, err := next(dec, maxNested, &left)
	if err != nil {
		return unread
	}
	return v
}

func next(dec *json.Decoder, depth int, left *int) (*value, error) {
	if *left--; depth == 0 || *left < 0 {
		var skipped json.RawMessage
		return unread, dec.Decode(&skipped)
	}
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		v := &value{kind: byte(t)}
		for dec.More() {
			name := ""
			if t == '{' {
				key, err := dec.Token()
				if err != nil {
					return nil, err
				}
				name, _ = key.(string)
			}
			item, err := next(dec, depth-1, left)
			if err != nil {
				return nil, err
			}
			if t == '{' {
				v.set(name, item)
			} else {
				v.items = append(v.items, item)
			}
		}
		_, err = dec.Token()
		return v, err
	case string:
		return &value{kind: '"', text: t}, nil
	case json.Number:
		return &value{kind: '0', text: t.String()}, nil
	case bool:
		text := strconv.FormatBool(t)
		return &value{kind: text[0], text: text}, nil
	}
	return &value{kind: 'n', text: "null"}, nil
}

// set adds a member. Of two with one name the last counts, as it does for whoever checks the arguments. The members of
// a large object are not compared: there, the first is found.
func (v *value) set(name string, item *value) {
	if len(v.members) <= maxCompared {
		v.members = slices.DeleteFunc(v.members, func(m member) bool { return m.name == name })
	}
	v.members = append(v.members, member{name, item})
}

const maxCompared = 256

// get gives a member of an object, nil when there is none.
func (v *value) get(name string) *value {
	if v != nil && v.kind == '{' {
		for _, m := range v.members {
			if m.name == name {
				return m.value
			}
		}
	}
	return nil
}

// is says whether a value is there, and of a kind.
func (v *value) is(kind byte) bool { return v != nil && v.kind == kind }

// each gives an object's members, none of anything else.
func (v *value) each() []member {
	if v.is('{') {
		return v.members
	}
	return nil
}

// list gives the items of an array, none of anything else.
func (v *value) list() []*value {
	if v.is('[') {
		return v.items
	}
	return nil
}

// words gives the texts among an array's items, or a text alone.
func (v *value) words() (out []string) {
	if v.is('"') {
		return []string{v.text}
	}
	for _, item := range v.list() {
		if item.kind == '"' {
			out = append(out, item.text)
		}
	}
	return out
}

// at follows a reference within the schema (RFC 6901 in a fragment); nil when it leads elsewhere, or nowhere.
func (v *value) at(ref string) *value {
	rest, ok := strings.CutPrefix(ref, "#")
	if !ok || len(ref) > 512 {
		return nil
	}
	rest, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return nil
	case rest == "":
		return v
	case rest[0] != '/':
		return nil // an anchor
	}
	for part := range strings.SplitSeq(rest[1:], "/") {
		if v.is('[') {
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v.items) {
				return nil
			}
			v = v.items[i]
			continue
		}
		if v = v.get(strings.NewReplacer("~1", "/", "~0", "~").Replace(part)); v == nil {
			return nil
		}
	}
	return v
}

// references counts how often each one is written.
func (v *value) references(count map[string]int) {
	if ref := v.get("$ref"); ref.is('"') {
		count[ref.text]++
	}
	for _, m := range v.members {
		m.references(count)
	}
	for _, item := range v.items {
		item.references(count)
	}
}
