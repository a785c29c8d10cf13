package render

import (
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// Format is how data is written. It is a flag's value.
type Format string

// The formats.
const (
	Table Format = "table" // for people
	Wide  Format = "wide"  // with every column
	JSON  Format = "json"  // one value
	YAML  Format = "yaml"
	JSONL Format = "jsonl" // one object per line, written as it is known
)

// Formats lists the formats.
func Formats() []Format { return []Format{Table, Wide, JSON, YAML, JSONL} }

// ForPeople says whether the format is for eyes rather than programs.
func (f Format) ForPeople() bool { return f == Table || f == Wide }

// String implements pflag.Value.
func (f *Format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *Format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *Format) Set(text string) error {
	if !slices.Contains(Formats(), Format(text)) {
		return problem.New(problem.Invalid, "%.20q is not one of %s", text, Choices())
	}
	*f = Format(text)
	return nil
}

// Choices is the list of formats as a help text has it.
func Choices() string {
	var names []string
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	return strings.Join(names, "|")
}
