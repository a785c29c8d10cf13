package mcp

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/id"
)

// ended is a call that has an outcome but no result.
type ended struct {
	why   *problem.Error
	at    standing
	grant id.Grant
	raw   json.RawMessage // the server's own error, where it answered with one
}

func (e *ended) Error() string { return e.why.Error() }

// Unwrap lets the problem be found.
func (e *ended) Unwrap() error { return e.why }

// fault is the JSON-RPC error of an error. A server's own is what it was. Anything else has a code of ours, and the problem as
// data: which of a call's ends it is, of which call, and by which grant.
func (e *Endpoint) fault(ctx context.Context, method string, err error) error {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		return wire
	}
	var end *ended
	if errors.As(err, &end) && end.raw != nil {
		own := &jsonrpc.Error{}
		if json.Unmarshal(end.raw, own) == nil && own.Code != 0 {
			return own
		}
	}
	d := problem.DetailOf(err)
	if d.Code == problem.Internal || d.Code == problem.BusDenied {
		e.Note.ErrorContext(ctx, "request", "method", method, "err", err)
	}
	data := struct {
		Code  problem.Code `json:"code"`
		Call  id.Call      `json:"call,omitempty"`
		Grant id.Grant     `json:"grant,omitempty"`
		Retry int64        `json:"retry_after_ms,omitempty"`
	}{Code: d.Code}
	var fast *tooFast
	if errors.As(err, &fast) {
		data.Retry = fast.after.Milliseconds()
	}
	if end != nil {
		data.Call, data.Grant = end.at.call, end.grant
	}
	raw, _ := json.Marshal(data) // of plain text
	return &jsonrpc.Error{Code: d.Code.JSONRPC(), Message: string(d.Code) + ": " + d.Message, Data: raw}
}
