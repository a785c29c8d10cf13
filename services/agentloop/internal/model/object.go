package model

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
)

var (
	errNotObject = errors.New("not one JSON object")
	errTwice     = errors.New("ambiguous: a name occurs twice in one object")
)

// jsonSpace is what JSON takes for white space; strings.TrimSpace would take more.
const jsonSpace = " \t\r\n"

// checkObject accepts exactly one JSON object in which no object names a member twice. Parsers differ in which of the
// two they take, so an approver could read other arguments than the tool.
func checkObject(s string) error {
	if !strings.HasPrefix(strings.TrimLeft(s, jsonSpace), "{") || !json.Valid([]byte(s)) {
		return errNotObject
	}
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var open []map[string]bool // the names of each open object; nil for an array
	name := false              // the next token is a member's name
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return errNotObject
		}
		switch tok {
		case json.Delim('{'):
			open, name = append(open, map[string]bool{}), true
			continue
		case json.Delim('['):
			open, name = append(open, nil), false
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		default:
			if name {
				names, key := open[len(open)-1], tok.(string)
				if names[key] {
					return errTwice
				}
				names[key], name = true, false
				continue
			}
		}
		// A value ended; inside an object a name follows.
		name = len(open) > 0 && open[len(open)-1] != nil
	}
}
