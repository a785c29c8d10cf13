package mcp

//lint:file-ignore SA1019 logging is to leave the protocol in 2027; the clients of today ask for it

import (
	"encoding/json"
	"reflect"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execwarden/execwarden/schemas/call"
)

// inputOf is what the client gave to what was asked for, as the broker passes it on. It is nil for a request that is no second
// one.
func inputOf(responses mcp.InputResponseMap, state string) json.RawMessage {
	if responses == nil && state == "" {
		return nil
	}
	raw, err := json.Marshal(struct {
		Responses mcp.InputResponseMap `json:"inputResponses,omitempty"`
		State     string               `json:"requestState,omitempty"`
	}{responses, state})
	if err != nil {
		return json.RawMessage("null") // no object, so the call is refused
	}
	return raw
}

// client is what the client said of itself, for its server.
func client(r mcp.Request) call.Client {
	out := call.Client{Protocol: modern}
	session, _ := r.GetSession().(*mcp.ServerSession)
	if session == nil {
		return out
	}
	if p := session.InitializeParams(); p != nil {
		out.Protocol = p.ProtocolVersion
		if p.Capabilities != nil {
			out.Capabilities, _ = json.Marshal(p.Capabilities) // it was JSON
		}
	}
	if meta := metaOf(r); meta != nil {
		if level, ok := meta[mcp.MetaKeyLogLevel].(string); ok {
			out.LogLevel = level
		}
		if caps, ok := meta[mcp.MetaKeyClientCapabilities]; ok {
			out.Capabilities, _ = json.Marshal(caps) // it was JSON
		}
	}
	return out
}

// metaOf is what a request says of itself, nil where it has no parameters.
func metaOf(r mcp.Request) map[string]any {
	p := r.GetParams()
	if v := reflect.ValueOf(p); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil
	}
	return p.GetMeta()
}
