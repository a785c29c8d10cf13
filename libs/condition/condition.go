// Package condition checks and evaluates the conditions of grants, in CEL. A condition is type-checked when the grant is
// made, can be no more expensive than a bound, and is false when it cannot be evaluated: so an allowing grant with a
// condition that fails allows nothing. What a denying one does then is its caller's to decide.
package condition

import (
	"encoding/json"
	"sync"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/execwarden/execwarden/libs/problem"
)

// Bounds of a condition.
const (
	MaxLength = 4096
	maxCost   = 100_000 // CEL's units: some 10 of them for a comparison
	maxCached = 4096
)

// Call is what a condition may look at.
type Call struct {
	Agent   string          // agent's name
	Tool    string          // connection.tool
	Run     string          // run's id
	Args    json.RawMessage // the argument object
	Input   json.RawMessage // what came with them of an MCP client's answers to its server; empty: nothing
	Tainted bool
	Now     time.Time
}

// env declares the variables of conditions.
var env = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("agent", cel.StringType),
		cel.Variable("tool", cel.StringType),
		cel.Variable("run", cel.StringType),
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("input", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("tainted", cel.BoolType),
		cel.Variable("now", cel.TimestampType),
	)
})

// none is the input of a call that answers nothing. Nobody writes into it.
var none = map[string]any{}

// Condition is a checked condition.
type Condition struct{ program cel.Program }

// Parse checks a condition. Its problem, of code invalid, says where what is wrong.
func Parse(text string) (*Condition, error) {
	if len(text) > MaxLength {
		return nil, problem.New(problem.Invalid, "a condition has at most %d bytes", MaxLength)
	}
	e, err := env()
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "conditions cannot be checked")
	}
	ast, issues := e.Compile(text)
	if issues.Err() != nil {
		return nil, problem.New(problem.Invalid, "the condition: %.1000s", issues.Err())
	}
	if ast.OutputType() != cel.BoolType {
		return nil, problem.New(problem.Invalid, "the condition is of type %s, and has to be true or false", ast.OutputType())
	}
	p, err := e.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, problem.New(problem.Invalid, "the condition: %.1000s", err)
	}
	return &Condition{p}, nil
}

// Holds says whether the condition holds. An error says why that cannot be told: an argument that is not there, or
// more work than a condition may make.
func (c *Condition) Holds(call Call) (bool, error) {
	var args map[string]any
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return false, problem.New(problem.Invalid, "the arguments are not an object")
	}
	input := none
	if len(call.Input) > 0 {
		input = nil // not to be written into
		if err := json.Unmarshal(call.Input, &input); err != nil {
			return false, problem.New(problem.Invalid, "the answers to what the server asked are not an object")
		}
	}
	v, _, err := c.program.Eval(map[string]any{
		"agent": call.Agent, "tool": call.Tool, "run": call.Run, "args": args, "input": input, "tainted": call.Tainted, "now": call.Now,
	})
	if err != nil {
		return false, problem.New(problem.Invalid, "the condition cannot be evaluated: %.300s", err)
	}
	b, ok := v.Value().(bool)
	return b && ok, nil
}

// Cache keeps checked conditions by their text. Its zero value is ready.
type Cache struct {
	mu    sync.Mutex
	known map[string]*Condition
}

// Parse is Parse, with what was parsed before kept.
func (c *Cache) Parse(text string) (*Condition, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[text]; ok {
		return k, nil
	}
	parsed, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if c.known == nil || len(c.known) >= maxCached { // start anew rather than keep books on use
		c.known = map[string]*Condition{}
	}
	c.known[text] = parsed
	return parsed, nil
}
