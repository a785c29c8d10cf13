package mcp

import (
	"reflect"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// given is a request's parameters, empty ones where the client sent none: then the SDK has a nil pointer of their type.
func given(p mcp.Params) mcp.Params {
	if v := reflect.ValueOf(p); v.Kind() == reflect.Pointer && v.IsNil() {
		if empty, ok := reflect.New(v.Type().Elem()).Interface().(mcp.Params); ok {
			return empty
		}
	}
	return p
}
