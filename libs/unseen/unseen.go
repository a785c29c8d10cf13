// Package unseen knows the characters that a person does not see: whoever approves what they read has to read what is
// there.
package unseen

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Rune says whether a character steers a terminal, or hides or reorders text: control characters of both sets; format
// characters, such as those that turn the direction of writing; line separators; what no font has; and what has no
// shape by definition (Unicode's Default_Ignorable_Code_Point), such as variation selectors and the Hangul filler, of
// which a long text can be made that shows as nothing.
func Rune(r rune) bool {
	return unicode.IsControl(r) || r == brailleBlank ||
		unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// brailleBlank is a letter of no dots.
const brailleBlank = '\u2800'

// EscapeJSON spells out the unseen characters of a JSON text as JSON's own escapes, so that it means the same; those of
// keep stand, such as the line feeds that it was indented with. They stand within strings only, where an escape means
// the same. What is not UTF-8 becomes U+FFFD.
func EscapeJSON(text, keep string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case !Rune(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
