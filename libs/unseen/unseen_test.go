package unseen_test

import (
	"encoding/json"
	"testing"

	"github.com/execwarden/execwarden/libs/unseen"
)

func TestRune(t *testing.T) {
	for name, r := range map[string]rune{
		"escape": 0x1B, "C1": 0x9B, "DEL": 0x7F, "line feed": '\n', "right to left override": 0x202E, "isolate": 0x2066, "zero width space": 0x200B,
		"soft hyphen": 0xAD, "byte order mark": 0xFEFF, "tag letter": 0xE0041, "private use": 0xE000, "line separator": 0x2028,
		"variation selector 1": 0xFE00, "variation selector 16": 0xFE0F, "variation selector 17": 0xE0100, "variation selector 256": 0xE01EF,
		"Hangul filler": 0x3164, "half-width Hangul filler": 0xFFA0, "Hangul choseong filler": 0x115F, "grapheme joiner": 0x34F,
		"Khmer inherent vowel": 0x17B4, "Mongolian selector": 0x180B, "unassigned ignorable": 0xE0FFF, "braille blank": 0x2800,
	} {
		if !unseen.Rune(r) {
			t.Errorf("%s is seen", name)
		}
	}
	for _, r := range " aÄ語한\u0301👍⠁\u00A0\u3000\uFFFD" {
		if unseen.Rune(r) {
			t.Errorf("%q is not seen", r)
		}
	}
}

// What is spelled out means the same to whoever reads the JSON.
func TestEscapeJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": "plain ü €"}`:         `{"a": "plain ü €"}`,
		"{\n\t\"a\": 1}":             "{\n\\u0009\"a\": 1}",
		"\"\u202e\u007f\u2028\"":     `"\u202e\u007f\u2028"`,
		"\"a\U000E0100b\U0010FFFD\"": `"a\udb40\udd00b\udbff\udffd"`,
		"\"\xff\"":                   "\"\ufffd\"",
	} {
		got := unseen.EscapeJSON(text, "\n")
		if got != want {
			t.Errorf("%q becomes %q", text, got)
		}
		var before, after string
		if json.Unmarshal([]byte(text), &before) == nil && (json.Unmarshal([]byte(got), &after) != nil || after != before) {
			t.Errorf("%q means %q, and %q meant %q", got, after, text, before)
		}
	}
}
