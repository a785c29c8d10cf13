package manifest

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// Field is a field that differs, by its path in the thing's JSON. An absent value is empty.
type Field struct {
	Path string          `json:"path"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// diff compares two values of one type as their JSON. A list is one value: its order may mean something.
func diff(old, want any) []Field {
	before, after := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	flatten("", marshal(old), before)
	flatten("", marshal(want), after)
	paths := slices.Collect(maps.Keys(before))
	for path := range after {
		if _, both := before[path]; !both {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	var out []Field
	for _, path := range paths {
		if !bytes.Equal(before[path], after[path]) {
			out = append(out, Field{path, before[path], after[path]})
		}
	}
	return out
}

// marshal cannot fail: both values are the events' own types.
func marshal(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("manifest: an event's type has no JSON: " + err.Error())
	}
	return raw
}

func flatten(path string, raw json.RawMessage, into map[string]json.RawMessage) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		into[path] = raw
		return
	}
	for name, value := range object {
		at := name
		if path != "" {
			at = path + "." + name
		}
		flatten(at, value, into)
	}
}
