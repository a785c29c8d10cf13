package bridge

import (
	"bytes"
	"encoding/json"

	"github.com/execwarden/execwarden/libs/problem"
)

// What the protocol calls things that are read on the way.
const (
	modern     = "2026-07-28" // the first version without sessions
	versionKey = "io.modelcontextprotocol/protocolVersion"
)

// message is one line of the client. raw is what goes on.
type message struct {
	raw     []byte
	id      string // as it was written; empty for what is no request
	method  string // empty for an answer
	name    string // of what is called, got or read, or the task's id
	version string // of the protocol, where the message itself says it
	cancels string // the id of the request that it cancels
}

// read reads what is needed of a message. Problems: invalid.
func read(raw []byte) (*message, error) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "a line of the client is no JSON-RPC message and was left out")
	}
	var p struct {
		Name    string                     `json:"name"`
		URI     string                     `json:"uri"`
		Task    string                     `json:"taskId"`
		Request json.RawMessage            `json:"requestId"`
		Meta    map[string]json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p) // what is otherwise is for the server to refuse
	out := &message{raw: raw, method: m.Method}
	if m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null" {
		out.id = compacted(m.ID)
	}
	_ = json.Unmarshal(p.Meta[versionKey], &out.version) // what is no text is no version
	switch m.Method {
	case "tools/call", "prompts/get":
		out.name = p.Name
	case "resources/read":
		out.name = p.URI
	case "tasks/get", "tasks/update", "tasks/cancel":
		out.name = p.Task
	case "notifications/cancelled":
		out.cancels = compacted(p.Request)
	}
	return out, nil
}

func (m *message) request() bool { return m.id != "" }

func (m *message) modern() bool { return m.version >= modern }

// answerOf says which request a message of the server answers; empty for none.
func answerOf(raw []byte) string {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(raw, &m) != nil || m.Method != "" || len(m.ID) == 0 || string(m.ID) == "null" {
		return ""
	}
	return compacted(m.ID)
}

func compacted(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

// idIn finds the id of a message of which only the beginning is there.
func idIn(beginning []byte) string {
	dec := json.NewDecoder(bytes.NewReader(beginning))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for {
		name, err := dec.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return ""
		}
		if name == "id" && string(value) != "null" {
			return string(value)
		}
	}
}

// refusal answers a request that has no answer of the server's.
func refusal(id string, err error) []byte {
	d := problem.DetailOf(err)
	raw, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), // of an id that is JSON
		"error": map[string]any{"code": d.Code.JSONRPC(), "message": string(d.Code) + ": " + d.Message, "data": map[string]any{"code": d.Code}}})
	return raw
}
