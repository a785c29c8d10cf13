package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// annotation is how a tool's schema says that an argument goes into a header too, in the protocol of 2026-07-28.
const annotation = "x-mcp-header"

// property is what of a schema says so.
type property struct {
	Header     json.RawMessage     `json:"x-mcp-header"`
	Properties map[string]property `json:"properties"`
}

// UnmarshalJSON takes what is no object, such as the schema true, for one that says nothing.
func (p *property) UnmarshalJSON(raw []byte) error {
	type said property
	var q said
	if json.Unmarshal(raw, &q) == nil {
		*p = property(q)
	}
	return nil
}

// maxDepth bounds how deep arguments are looked for.
const maxDepth = 8

// paramHeaders are the headers that a call's arguments go into besides. The SDK adds them in a session that listed the tool, and
// a client's does not: what it may call was decided before. Tools with annotations that do not hold are not listed at all.
func paramHeaders(schema, args json.RawMessage) http.Header {
	if !bytes.Contains(schema, []byte(annotation)) {
		return nil
	}
	var of property
	var given map[string]json.RawMessage
	if json.Unmarshal(schema, &of) != nil || json.Unmarshal(args, &given) != nil {
		return nil
	}
	out := http.Header{}
	mirror(out, of.Properties, given, maxDepth)
	return out
}

func mirror(out http.Header, of map[string]property, given map[string]json.RawMessage, depth int) {
	for name, p := range of {
		raw, ok := given[name]
		if !ok || depth == 0 {
			continue
		}
		var header string
		if text, plain := primitive(raw); plain && json.Unmarshal(p.Header, &header) == nil && headerName(header) {
			out.Set("Mcp-Param-"+header, encoded(text))
		}
		var inner map[string]json.RawMessage
		if len(p.Properties) > 0 && json.Unmarshal(raw, &inner) == nil {
			mirror(out, p.Properties, inner, depth-1)
		}
	}
}

// primitive is a string, a boolean or an integer as a header has it. null is none of them, nor what a number of JavaScript's
// cannot hold.
func primitive(raw json.RawMessage) (string, bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', 0, 64), v == math.Trunc(v) && math.Abs(v) < 1<<53
	}
	return "", false
}

func headerName(name string) bool {
	return name != "" && len(name) <= 100 && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// encoded wraps what cannot stand in a header as it is, or would be taken for wrapped.
func encoded(text string) string {
	const before, after = "=?base64?", "?="
	plain := strings.TrimSpace(text) == text && !strings.HasPrefix(text, before) && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	if plain {
		return text
	}
	return before + base64.StdEncoding.EncodeToString([]byte(text)) + after
}
