package condition

import (
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"

	"github.com/execwarden/execwarden/libs/problem"
)

// claimsEnv declares what mappings look at.
var claimsEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("claims", cel.MapType(cel.StringType, cel.DynType)), ext.Strings())
})

// Mapping makes a name of the claims of a token.
type Mapping struct{ program cel.Program }

// ParseMapping checks a mapping: an expression over claims that gives a string. Its problem, of code invalid, says where what
// is wrong.
func ParseMapping(text string) (*Mapping, error) {
	if len(text) > MaxLength {
		return nil, problem.New(problem.Invalid, "a mapping has at most %d bytes", MaxLength)
	}
	e, err := claimsEnv()
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "mappings cannot be checked")
	}
	ast, issues := e.Compile(text)
	if issues.Err() != nil {
		return nil, problem.New(problem.Invalid, "the mapping: %.1000s", issues.Err())
	}
	if t := ast.OutputType(); t != cel.StringType && t != cel.DynType { // a claim is of any type until it is there
		return nil, problem.New(problem.Invalid, "the mapping is of type %s, and has to be a string", t)
	}
	p, err := e.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, problem.New(problem.Invalid, "the mapping: %.1000s", err)
	}
	return &Mapping{p}, nil
}

// Of gives the name of claims. An error, of code denied, says that they have none: a claim that is not there, or no string.
func (m *Mapping) Of(claims map[string]any) (string, error) {
	v, _, err := m.program.Eval(map[string]any{"claims": claims})
	if err != nil {
		return "", problem.Wrap(err, problem.Denied, "the mapping gives nothing for the claims")
	}
	name, ok := v.Value().(string)
	if !ok || name == "" {
		return "", problem.New(problem.Denied, "the mapping gives no name for the claims")
	}
	return name, nil
}
