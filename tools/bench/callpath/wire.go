package callpath

import (
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// problemOf is the code of ours in the error that a client was given.
func problemOf(err error) string {
	var e *jsonrpc.Error
	var data struct{ Code string }
	if !errors.As(err, &e) || json.Unmarshal(e.Data, &data) != nil {
		return ""
	}
	return data.Code
}
