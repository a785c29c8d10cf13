package connection

import (
	"bytes"
	"encoding/json"
	"slices"
)

// The tools that stand for a connection's own where an agent may call too many to be shown. Searching and describing ask
// nothing of the provider. CallOperation is no tool of its own: whoever speaks for the agent requests the tool that it
// names, and that one needs the grant.
const (
	SearchOperations  = "search_operations"
	DescribeOperation = "describe_operation"
	CallOperation     = "call_operation"
)

// Folded says whether a connection's tool has the name of one that stands for others. No provider's own is called so.
func Folded(tool string) bool {
	return slices.Contains([]string{SearchOperations, DescribeOperation, CallOperation}, tool)
}

// OperationCall is what CallOperation takes.
type OperationCall struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
}

// ParseOperationCall reads the arguments of CallOperation. It says no to all that is not an operation and an object.
func ParseOperationCall(args json.RawMessage) (OperationCall, bool) {
	var c OperationCall
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.DisallowUnknownFields()
	if dec.Decode(&c) != nil || dec.More() || c.Tool == "" || Folded(c.Tool) {
		return OperationCall{}, false
	}
	if c.Arguments == nil {
		c.Arguments = json.RawMessage("{}")
	}
	return c, bytes.HasPrefix(bytes.TrimSpace(c.Arguments), []byte("{"))
}
