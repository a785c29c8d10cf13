package apipackage

import (
	"fmt"
	"strings"
)

// maxArgName is the longest name that model APIs take for an argument.
const maxArgName = 64

// argument is one argument in the making: a parameter, or a field of the body.
type argument struct {
	name   string // in the document
	in     string // path, query, header or body
	schema *Schema
	must   bool
	set    func(arg string) // tells the parameter or field its argument
}

// nameArguments gives each argument a name that models may use, and builds the schema of all of them. Where the same
// name goes to two places, a parameter says which it is: path_id beside the body's id.
func nameArguments(args []argument) *Schema {
	input := &Schema{Type: Types{"object"}, AdditionalProperties: &Schema{Always: new(bool)}}
	if len(args) > 0 {
		input.Properties = make(map[string]*Schema, len(args))
	}
	wishes := map[string]int{}
	for _, a := range args {
		wishes[argName(a.name)]++
	}
	give := func(a argument, name string) {
		for i := 2; input.Properties[name] != nil; i++ {
			name = fmt.Sprintf("%.60s_%d", strings.TrimRight(name, "_0123456789"), i)
		}
		input.Properties[name] = a.schema
		if a.must {
			input.Required = append(input.Required, name)
		}
		a.set(name)
	}
	// Who keeps a name of its own comes first, so that no prefixed one takes it away.
	for _, a := range args {
		if name := argName(a.name); wishes[name] == 1 || a.in == inBody {
			give(a, name)
		}
	}
	for _, a := range args {
		if name := argName(a.name); wishes[name] > 1 && a.in != inBody {
			give(a, argName(a.in+"_"+name))
		}
	}
	return input
}

const inBody = "body"

// argName writes a name with the characters that an argument's may have.
func argName(name string) string {
	s := slug(name, 4*maxArgName, "-.")
	if s == "" {
		return "arg_" + shortHash(name)
	}
	if len(s) > maxArgName {
		s = s[:maxArgName-9] + "_" + shortHash(name)
	}
	return s
}
