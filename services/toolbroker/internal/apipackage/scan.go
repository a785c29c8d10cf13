package apipackage

import (
	"bytes"
	"encoding/json"
	"iter"
)

// measure counts the values of a JSON text, which need not be valid, and how deep they nest.
func measure(raw []byte) (nodes, depth int) {
	nodes = 1
	now := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i) - 1
		case '{', '[':
			nodes++
			now++
			depth = max(depth, now)
		case '}', ']':
			now--
		case ',':
			nodes++
		}
	}
	return nodes, depth
}

// members walks over an object of valid JSON, and elements over an array. Both give parts of raw itself, so that a
// large document is looked into without being copied.
func members(raw []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		i := spaceEnd(raw, 0)
		if i >= len(raw) || raw[i] != '{' {
			return
		}
		for i = spaceEnd(raw, i+1); i < len(raw) && raw[i] == '"'; i = nextItem(raw, i) {
			end := stringEnd(raw, i)
			var name string
			if json.Unmarshal(raw[i:end], &name) != nil {
				return
			}
			start := spaceEnd(raw, spaceEnd(raw, end)+1) // past the colon
			i = valueEnd(raw, start)
			if !yield(name, raw[start:i]) {
				return
			}
		}
	}
}

func elements(raw []byte) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		i := spaceEnd(raw, 0)
		if i >= len(raw) || raw[i] != '[' {
			return
		}
		for i = spaceEnd(raw, i+1); i < len(raw) && raw[i] != ']'; i = nextItem(raw, i) {
			start := i
			i = valueEnd(raw, start)
			if !yield(raw[start:i]) {
				return
			}
		}
	}
}

// nextItem steps over the comma, if there is one, behind a value that ended at i.
func nextItem(raw []byte, i int) int {
	if i = spaceEnd(raw, i); i < len(raw) && raw[i] == ',' {
		i = spaceEnd(raw, i+1)
	}
	return i
}

func spaceEnd(raw []byte, i int) int {
	for i < len(raw) && bytes.IndexByte([]byte(" \t\r\n"), raw[i]) >= 0 {
		i++
	}
	return i
}

// stringEnd is where the string that begins at i ends.
func stringEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

func valueEnd(raw []byte, i int) int {
	for depth := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			if i = stringEnd(raw, i) - 1; depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}
