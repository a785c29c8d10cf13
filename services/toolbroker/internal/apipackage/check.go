package apipackage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/execwarden/execwarden/libs/problem"
)

// checker holds arguments against the schema that a tool shows.
type checker struct {
	input  *Schema
	shape  shape
	schema *jsonschema.Schema
}

// newChecker compiles an operation's schema.
func (p *Package) newChecker(o *Operation) (*checker, error) {
	input := p.inputOf(o)
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the schema of %s cannot be written", o.Tool)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the schema of %s cannot be read", o.Tool)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is loaded from anywhere
	c.UseRegexpEngine(pattern)
	const at = "urn:tool"
	if err := c.AddResource(at, doc); err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the schema of %s cannot be used", o.Tool)
	}
	schema, err := c.Compile(at)
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "the API describes the arguments of %s in a way that cannot be checked: %.300s", o.Tool, err)
	}
	return &checker{input: input, shape: shape{input.Defs}, schema: schema}, nil
}

// pattern compiles a regular expression of a document. One in a dialect that Go does not read matches everything: the
// provider checks it.
func pattern(text string) (jsonschema.Regexp, error) {
	if re, err := regexp.Compile(text); err == nil {
		return re, nil
	}
	return anything(text), nil
}

type anything string

func (anything) MatchString(string) bool { return true }
func (a anything) String() string        { return string(a) }

// check reads arguments: mended where there is no doubt, and refused in words that say what to change.
func (c *checker) check(raw json.RawMessage) ([]member, error) {
	given, err := parseArguments(raw)
	if err != nil {
		return nil, err
	}
	for _, m := range given {
		if c.input.Properties[m.name] == nil {
			return nil, problem.New(problem.Invalid, "there is no argument %.60q; %s", m.name, c.known())
		}
	}
	args := c.shape.members(given, c.input)
	for _, name := range c.input.Required {
		if !slices.ContainsFunc(args, func(m member) bool { return m.name == name }) {
			return nil, problem.New(problem.Invalid, "argument %s is missing", name)
		}
	}
	if err := c.schema.Validate(value{kind: object, members: args}.plain()); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%s", complaint(err))
	}
	return args, nil
}

func (c *checker) known() string {
	names := sortedKeys(c.input.Properties)
	if len(names) == 0 {
		return "it takes none"
	}
	return "there are " + clip(strings.Join(names, ", "), 2000)
}

// complaint says where arguments break their schema, in at most a few lines.
func complaint(err error) string {
	var fault *jsonschema.ValidationError
	if !errors.As(err, &fault) {
		return "the arguments cannot be checked"
	}
	printer := message.NewPrinter(language.English)
	var lines []string
	var walk func(*jsonschema.ValidationError, int)
	walk = func(e *jsonschema.ValidationError, depth int) {
		if len(lines) >= 4 || depth > 50 {
			return
		}
		if len(e.Causes) == 0 {
			at := "the arguments"
			if len(e.InstanceLocation) > 0 {
				at = "argument " + strings.Join(e.InstanceLocation, ".")
			}
			if line := fmt.Sprintf("%.200s: %.300s", at, e.ErrorKind.LocalizedString(printer)); !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
			return
		}
		for _, cause := range e.Causes {
			walk(cause, depth+1)
		}
	}
	walk(fault, 0)
	return strings.Join(lines, "; ")
}
