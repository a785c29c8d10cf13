// Package folded shows three tools in place of a connection's many: one that finds them by words, one that describes
// them, and one that calls them. What an agent may not call, it does not find.
package folded

import (
	"bytes"
	"encoding/json"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
)

// From is how many tools of one connection an agent has to see for them to be folded.
const From = 65

// Tools describes the three.
func Tools() []connection.Tool {
	return []connection.Tool{
		{
			Name: connection.SearchOperations, Effect: connection.Pure,
			Description: "Find operations of this connection by words, such as \"list open invoices\".",
			Schema:      json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer","minimum":1,"maximum":50}},"required":["query"],"additionalProperties":false}`),
		},
		{
			Name: connection.DescribeOperation, Effect: connection.Pure,
			Description: "Show what an operation does and which arguments it takes.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"tool":{"type":"string"}},"required":["tool"],"additionalProperties":false}`),
		},
		{
			Name: connection.CallOperation, Effect: connection.Opaque, Writes: true,
			Description: "Call an operation that " + connection.SearchOperations + " found, with the arguments that " + connection.DescribeOperation + " shows.",
			Schema:      json.RawMessage(`{"type":"object","properties":{"tool":{"type":"string"},"arguments":{"type":"object"}},"required":["tool","arguments"],"additionalProperties":false}`),
		},
	}
}

// Answer answers a call of one of the three, of which allowed says what may be found. The one that calls is refused: it
// names no operation, or it would have been requested as that one.
func (x *Index) Answer(tool string, raw json.RawMessage, allowed func(tool string) bool) (json.RawMessage, error) {
	if tool == connection.CallOperation {
		return nil, problem.New(problem.Invalid, CallNames)
	}
	var args struct {
		Query string `json:"query"`
		Tool  string `json:"tool"`
		Limit int    `json:"limit"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&args); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "%s takes query, a text, and limit, a number; %s takes tool, a text", connection.SearchOperations, connection.DescribeOperation)
	}
	if tool == connection.SearchOperations {
		return written(struct {
			Operations []Hit `json:"operations"`
		}{x.Search(args.Query, args.Limit, allowed)})
	}
	found, err := x.Describe(args.Tool, allowed)
	if err != nil {
		return nil, err
	}
	return written(found)
}

// CallNames says what CallOperation takes.
const CallNames = connection.CallOperation + " takes tool, the name of an operation that " + connection.SearchOperations + " finds, and arguments, an object"

func written(answer any) (json.RawMessage, error) {
	raw, err := json.Marshal(answer)
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the answer cannot be written")
	}
	return raw, nil
}
