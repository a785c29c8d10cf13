package apipackage

import (
	"encoding/json"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// The tools that stand for all others where a package has too many. Searching and describing change nothing and need no
// call to the API. Calling is not a tool of its own: Resolve says which tool is meant, and that one needs the grant.
const (
	SearchTool   = "search_operations"
	DescribeTool = "describe_operation"
	CallTool     = "call_operation"
)

var metaNames = map[string]bool{SearchTool: true, DescribeTool: true, CallTool: true}

// MetaTools describes the three.
func MetaTools() []connection.Tool {
	return []connection.Tool{
		{
			Name: SearchTool, Effect: connection.Pure,
			Description: "Find operations of this API by words, such as \"list open invoices\".",
			Schema:      json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","minimum":1,"maximum":50}},"required":["query"],"additionalProperties":false}`),
		},
		{
			Name: DescribeTool, Effect: connection.Pure,
			Description: "Show what an operation does and which arguments it takes.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"tool":{"type":"string"}},"required":["tool"],"additionalProperties":false}`),
		},
		{
			Name: CallTool, Effect: connection.Opaque, Writes: true,
			Description: "Call an operation that " + SearchTool + " found, with the arguments that " + DescribeTool + " shows.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"tool":{"type":"string"},"arguments":{"type":"object"}},"required":["tool","arguments"],"additionalProperties":false}`),
		},
	}
}

// Resolve says which tool a call of call_operation means, and with which arguments. Whoever decides on the call decides
// on that tool.
func (x *Index) Resolve(args json.RawMessage) (tool string, arguments json.RawMessage, err error) {
	given, err := parseArguments(args)
	if err != nil {
		return "", nil, err
	}
	arguments = json.RawMessage("{}")
	for _, m := range given {
		switch {
		case m.name == "tool" && m.kind == text:
			tool = m.scalar
		case m.name == "arguments" && m.kind == object:
			arguments = m.appendJSON(nil)
		default:
			return "", nil, problem.New(problem.Invalid, "%s takes tool, a text, and arguments, an object", CallTool)
		}
	}
	if _, ok := x.pkg.Operation(tool); !ok {
		return "", nil, problem.New(problem.NotFound, "there is no operation %.80q; %s finds them", tool, SearchTool)
	}
	return tool, arguments, nil
}

// call answers the two tools that need no call to the API, and refuses the one that should have been resolved.
func (x *Index) call(tool string, raw json.RawMessage) (upstream.Result, error) {
	if tool == CallTool {
		return upstream.Result{}, problem.New(problem.Denied, "%s is not called itself: the operation that it names is", CallTool)
	}
	var args struct {
		Query string `json:"query"`
		Tool  string `json:"tool"`
		Limit int    `json:"limit"`
	}
	if err := json.Unmarshal(raw, &args); err != nil {
		return upstream.Result{}, problem.Wrap(err, problem.Invalid, "the arguments of %s are a text, and a number for limit", tool)
	}
	if tool == SearchTool {
		return metaResult(struct {
			Operations []Hit `json:"operations"`
		}{x.Search(args.Query, args.Limit)})
	}
	found, err := x.Describe(args.Tool)
	if err != nil {
		return upstream.Result{}, err
	}
	return metaResult(found)
}

func metaResult(answer any) (upstream.Result, error) {
	raw, err := json.Marshal(answer)
	if err != nil {
		return upstream.Result{}, problem.Wrap(err, problem.Internal, "the answer cannot be written")
	}
	return upstream.Result{Content: raw}, nil
}
