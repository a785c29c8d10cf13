package mcp

import (
	"encoding/json"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The results below are written as they came: each is one of the SDK's for what the SDK puts into it, and the members that
// were read for what it does not know, or would write otherwise.
type (
	members = map[string]json.RawMessage

	rawCall struct {
		mcp.CallToolResult
		raw members
	}
	rawRead struct {
		mcp.ReadResourceResult
		raw members
	}
	rawPrompt struct {
		mcp.GetPromptResult
		raw members
	}
	rawComplete struct {
		mcp.CompleteResult
		raw members
	}
	rawTools struct {
		mcp.ListToolsResult
		raw members
	}
	rawResources struct {
		mcp.ListResourcesResult
		raw members
	}
	rawTemplates struct {
		mcp.ListResourceTemplatesResult
		raw members
	}
	rawPrompts struct {
		mcp.ListPromptsResult
		raw members
	}
)

func (r *rawCall) MarshalJSON() ([]byte, error)      { return written(r.raw, r.Meta) }
func (r *rawRead) MarshalJSON() ([]byte, error)      { return written(r.raw, r.Meta) }
func (r *rawPrompt) MarshalJSON() ([]byte, error)    { return written(r.raw, r.Meta) }
func (r *rawComplete) MarshalJSON() ([]byte, error)  { return written(r.raw, r.Meta) }
func (r *rawTools) MarshalJSON() ([]byte, error)     { return written(r.raw, r.Meta) }
func (r *rawResources) MarshalJSON() ([]byte, error) { return written(r.raw, r.Meta) }
func (r *rawTemplates) MarshalJSON() ([]byte, error) { return written(r.raw, r.Meta) }
func (r *rawPrompts) MarshalJSON() ([]byte, error)   { return written(r.raw, r.Meta) }

func (r *rawCall) result(err error) (mcp.Result, error)     { return or(r, err) }
func (r *rawRead) result(err error) (mcp.Result, error)     { return or(r, err) }
func (r *rawPrompt) result(err error) (mcp.Result, error)   { return or(r, err) }
func (r *rawComplete) result(err error) (mcp.Result, error) { return or(r, err) }
func (r rawTools) result(err error) (mcp.Result, error)     { return or(&r, err) }
func (r rawResources) result(err error) (mcp.Result, error) { return or(&r, err) }
func (r rawTemplates) result(err error) (mcp.Result, error) { return or(&r, err) }
func (r rawPrompts) result(err error) (mcp.Result, error)   { return or(&r, err) }

func or(r mcp.Result, err error) (mcp.Result, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// written adds to members what the SDK says of the server that answers, where the provider's own server said nothing.
func written(raw members, meta mcp.Meta) ([]byte, error) {
	if len(meta) == 0 {
		return json.Marshal(raw)
	}
	all := members{}
	if raw["_meta"] != nil {
		_ = json.Unmarshal(raw["_meta"], &all) // what is no object gives way
	}
	for name, value := range meta {
		one, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		all[name] = one
	}
	out := maps.Clone(raw)
	var err error
	if out["_meta"], err = json.Marshal(all); err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// page is one page of a list, for nobody but the agent.
func page(of string, items []json.RawMessage, next string) members {
	out := members{"resultType": json.RawMessage(`"complete"`), "cacheScope": json.RawMessage(`"private"`), "ttlMs": json.RawMessage("0")}
	out[of], _ = json.Marshal(items) // of values that are JSON
	if next != "" {
		out["nextCursor"], _ = json.Marshal(next)
	}
	return out
}

// cacheable fills what every result that may be kept has to say, where its server did not.
func cacheable(raw members) members {
	if raw == nil || raw["resultType"] != nil && string(raw["resultType"]) != `"complete"` {
		return raw
	}
	out := maps.Clone(raw)
	if out["ttlMs"] == nil {
		out["ttlMs"] = json.RawMessage("0")
	}
	out["cacheScope"] = json.RawMessage(`"private"`) // whatever the server says: it is what one agent may see
	return out
}
