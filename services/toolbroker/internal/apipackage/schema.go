package apipackage

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Schema is a JSON Schema (2020-12) of what a document can say of a value. The zero value allows anything.
type Schema struct {
	Always *bool `json:"-"` // a schema that is just true or false

	Ref         string            `json:"$ref,omitempty"` // #/$defs/ and a name
	Type        Types             `json:"type,omitempty"`
	Format      string            `json:"format,omitempty"`
	Description string            `json:"description,omitempty"`
	Enum        []json.RawMessage `json:"enum,omitempty"`
	Const       json.RawMessage   `json:"const,omitempty"`
	Default     json.RawMessage   `json:"default,omitempty"`

	Properties           map[string]*Schema  `json:"properties,omitempty"`
	PatternProperties    map[string]*Schema  `json:"patternProperties,omitempty"`
	AdditionalProperties *Schema             `json:"additionalProperties,omitempty"`
	PropertyNames        *Schema             `json:"propertyNames,omitempty"`
	Required             []string            `json:"required,omitempty"`
	DependentRequired    map[string][]string `json:"dependentRequired,omitempty"`
	MinProperties        uint64              `json:"minProperties,omitempty"`
	MaxProperties        *uint64             `json:"maxProperties,omitempty"`

	Items       *Schema   `json:"items,omitempty"`
	PrefixItems []*Schema `json:"prefixItems,omitempty"`
	Contains    *Schema   `json:"contains,omitempty"`
	MinContains *uint64   `json:"minContains,omitempty"`
	MaxContains *uint64   `json:"maxContains,omitempty"`
	MinItems    uint64    `json:"minItems,omitempty"`
	MaxItems    *uint64   `json:"maxItems,omitempty"`
	UniqueItems bool      `json:"uniqueItems,omitempty"`

	AllOf []*Schema `json:"allOf,omitempty"`
	AnyOf []*Schema `json:"anyOf,omitempty"`
	OneOf []*Schema `json:"oneOf,omitempty"`
	Not   *Schema   `json:"not,omitempty"`
	If    *Schema   `json:"if,omitempty"`
	Then  *Schema   `json:"then,omitempty"`
	Else  *Schema   `json:"else,omitempty"`

	Minimum          *float64 `json:"minimum,omitempty"`
	Maximum          *float64 `json:"maximum,omitempty"`
	ExclusiveMinimum *float64 `json:"exclusiveMinimum,omitempty"`
	ExclusiveMaximum *float64 `json:"exclusiveMaximum,omitempty"`
	MultipleOf       *float64 `json:"multipleOf,omitempty"`
	MinLength        uint64   `json:"minLength,omitempty"`
	MaxLength        *uint64  `json:"maxLength,omitempty"`
	Pattern          string   `json:"pattern,omitempty"`

	Defs map[string]*Schema `json:"$defs,omitempty"` // at the root of a tool's schema only
}

// Types are the types that a value may have; none stands for any.
type Types []string

// MarshalJSON implements json.Marshaler: a single type is written without a list around it.
func (t Types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Types) UnmarshalJSON(raw []byte) error {
	if bytes.HasPrefix(raw, []byte{'"'}) {
		*t = Types{""}
		return json.Unmarshal(raw, &(*t)[0])
	}
	return json.Unmarshal(raw, (*[]string)(t))
}

func (t Types) has(name string) bool { return slices.Contains(t, name) }

// only says whether a value has the named type, or is null.
func (t Types) only(names ...string) bool {
	for _, have := range t {
		if have != "null" && !slices.Contains(names, have) {
			return false
		}
	}
	return slices.ContainsFunc(names, t.has)
}

// bare is a Schema without its methods.
type bare Schema

// MarshalJSON implements json.Marshaler.
func (s *Schema) MarshalJSON() ([]byte, error) {
	if s.Always != nil {
		return json.Marshal(*s.Always)
	}
	return json.Marshal((*bare)(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Schema) UnmarshalJSON(raw []byte) error {
	if raw = bytes.TrimSpace(raw); bytes.Equal(raw, []byte("true")) || bytes.Equal(raw, []byte("false")) {
		always := raw[0] == 't'
		*s = Schema{Always: &always}
		return nil
	}
	return json.Unmarshal(raw, (*bare)(s))
}

// children are the schemas right inside s, in an order that is always the same.
func (s *Schema) children(yield func(*Schema) bool) {
	for _, list := range [][]*Schema{s.PrefixItems, s.AllOf, s.AnyOf, s.OneOf, {s.AdditionalProperties, s.PropertyNames, s.Items, s.Contains, s.Not, s.If, s.Then, s.Else}} {
		for _, c := range list {
			if c != nil && !yield(c) {
				return
			}
		}
	}
	for _, m := range []map[string]*Schema{s.Properties, s.PatternProperties, s.Defs} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(m[name]) {
				return
			}
		}
	}
}

// each gives a copy of s with f done to each schema right inside it.
func (s *Schema) each(f func(*Schema) *Schema) *Schema {
	c := *s
	one := func(p **Schema) {
		if *p != nil {
			*p = f(*p)
		}
	}
	list := func(p *[]*Schema) {
		*p = slices.Clone(*p)
		for i := range *p {
			one(&(*p)[i])
		}
	}
	named := func(p *map[string]*Schema) {
		if *p == nil {
			return
		}
		m := make(map[string]*Schema, len(*p))
		for k, v := range *p {
			m[k] = f(v)
		}
		*p = m
	}
	for _, p := range []**Schema{&c.AdditionalProperties, &c.PropertyNames, &c.Items, &c.Contains, &c.Not, &c.If, &c.Then, &c.Else} {
		one(p)
	}
	for _, p := range []*[]*Schema{&c.PrefixItems, &c.AllOf, &c.AnyOf, &c.OneOf} {
		list(p)
	}
	for _, p := range []*map[string]*Schema{&c.Properties, &c.PatternProperties} {
		named(p)
	}
	return &c
}
