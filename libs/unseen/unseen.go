// Package unseen knows the characters that a person does not see: whoever approves what they read has to read what is
// there.
package unseen

import "unicode"

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
