package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// errUndeclared answers a client that asks about tasks and does not declare them.
var errUndeclared = &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client does not declare the extension " + tasksExtension,
	Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`)}

// refusedAtEdge answers what the tasks extension wants refused and the SDK, which knows no tasks, would let pass. Where a request's
// header is about another task than its body, who routes by the one would be led astray by the other ("Streamable HTTP: Routing
// Headers"); and news of tasks, of which there are none, are not asked for by who does not declare tasks. What cannot be read is the SDK's
// to refuse, as is a method that is not its header's.
func refusedAtEdge(w http.ResponseWriter, r *http.Request, body []byte) bool {
	method := r.Header.Get("Mcp-Method")
	about := slices.Contains(modernTasks, method)
	if !about && !(method == "subscriptions/listen" && bytes.Contains(body, []byte(`"taskIds"`))) {
		return false
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Params struct {
			Task          string `json:"taskId"`
			Notifications struct {
				Tasks json.RawMessage `json:"taskIds"`
			} `json:"notifications"`
			Meta struct {
				Capabilities struct {
					Extensions map[string]json.RawMessage `json:"extensions"`
				} `json:"io.modelcontextprotocol/clientCapabilities"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &m) != nil || len(m.ID) == 0 {
		return false
	}
	var why *jsonrpc.Error
	_, declared := m.Params.Meta.Capabilities.Extensions[tasksExtension]
	switch name := r.Header.Get("Mcp-Name"); {
	case about && name != m.Params.Task:
		why = &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "the Mcp-Name header " + clip(name) + " is not the taskId of the body"}
	case !about && m.Params.Notifications.Tasks != nil && !declared:
		why = errUndeclared
	default:
		return false
	}
	answer, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": why}) // of plain text, and an id that is JSON
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(answer) // the client is gone if this fails
	return true
}
