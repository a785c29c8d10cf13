package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/unseen"
)

// visible spells out what would hide or reorder text: control characters, and format characters such as those that
// turn the direction of writing. Somebody approves what they see, so they have to see what is there.
func visible(text string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unseen.Rune(r):
			fmt.Fprintf(&b, "\\u{%X}", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// editable is JSON as a form offers it for editing: indented, and with what would hide or reorder text as JSON's own
// escapes, so that what is sent back means the same.
func editable(raw json.RawMessage) string { return unseen.EscapeJSON(pretty(raw), "\n\t") }

// short cuts text for a line.
func short(text string) string {
	const most = 240
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= most {
		return text
	}
	cut := most
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// clock is a time of day, stamp the whole of it. Both are UTC, as everything that is recorded.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
