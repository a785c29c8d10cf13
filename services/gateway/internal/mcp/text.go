package mcp

import (
	"encoding/json"
	"strconv"
	"strings"
)

// clip bounds what a client named, in a message to it.
func clip(text string) string {
	if len(text) > 100 {
		text = text[:100]
	}
	return strconv.Quote(strings.ToValidUTF8(text, "?"))
}

func connectionOf(full string) string {
	con, _, _ := cutName(full)
	return con
}

func cutName(full string) (con, name string, ok bool) { return strings.Cut(full, ".") }

func textOf(item json.RawMessage, member string) (value string) {
	var all map[string]json.RawMessage
	if json.Unmarshal(item, &all) == nil {
		_ = json.Unmarshal(all[member], &value) // what is no text is no name
	}
	return value
}

// atoi reads how many came before, none for an empty text.
func atoi(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.Atoi(text)
}

func itoa(n int) string { return strconv.Itoa(n) }
