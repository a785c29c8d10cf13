package mcp

import (
	"encoding/base64"
	"maps"
	"testing"
)

func TestParamHeaders(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},"count":{"type":"integer","x-mcp-header":"Count"},"dry":{"type":"boolean","x-mcp-header":"Dry"},
		"query":{"type":"string"},"any":true,"none":false,"strange":{"properties":[]},"list":{"type":"array","x-mcp-header":"List"},
		"evil":{"type":"string","x-mcp-header":"Evil\r\nAuthorization"},"empty":{"type":"string","x-mcp-header":""},"odd":{"x-mcp-header":7},
		"deep":{"type":"object","properties":{"zone":{"type":"string","x-mcp-header":"Zone"}}}}}`
	wrapped := func(s string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	for name, c := range map[string]struct {
		args string
		want map[string]string
	}{
		"plain":          {`{"region":"us west","count":42.0,"dry":false,"query":"x","deep":{"zone":"a"}}`, map[string]string{"Region": "us west", "Count": "42", "Dry": "false", "Zone": "a"}},
		"left out":       {`{"query":"x"}`, nil},
		"null":           {`{"region":null,"count":null,"deep":null}`, nil},
		"empty":          {`{"region":""}`, map[string]string{"Region": ""}},
		"another type":   {`{"region":["a"],"list":["a"],"count":1.5,"deep":"a"}`, nil},
		"a huge number":  {`{"count":9007199254740993}`, nil},
		"a new line":     {`{"region":"a\r\nAuthorization: x"}`, map[string]string{"Region": wrapped("a\r\nAuthorization: x")}},
		"spaces around":  {`{"region":" a "}`, map[string]string{"Region": wrapped(" a ")}},
		"not ASCII":      {`{"region":"世界"}`, map[string]string{"Region": wrapped("世界")}},
		"as if wrapped":  {`{"region":"=?base64?YQ==?="}`, map[string]string{"Region": wrapped("=?base64?YQ==?=")}},
		"no header name": {`{"evil":"x","empty":"x","odd":"x"}`, nil},
		"no object":      {`[]`, nil},
	} {
		got := map[string]string{}
		for k, v := range paramHeaders([]byte(schema), []byte(c.args)) {
			got[k[len("Mcp-Param-"):]] = v[0]
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := paramHeaders([]byte(`{"properties":{"a":{}}}`), []byte(`{"a":"b"}`)); got != nil {
		t.Errorf("%v", got)
	}
}
