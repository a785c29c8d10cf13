package render

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/unseen"
)

// Visible spells out hidden characters, but for line feeds and tabs. Somebody approves what they see, so they have to
// see what is there.
func Visible(text string) string {
	return spell(text, func(r rune) bool { return unseen.Rune(r) && r != '\n' && r != '\t' })
}

// Inline is Visible in one line.
func Inline(text string) string { return spell(strings.Join(strings.Fields(text), " "), unseen.Rune) }

// Short is Inline, cut to at most so many characters.
func Short(text string, most int) string {
	// The text may be large, and no more of it is needed than this.
	if limit := most * utf8.UTFMax * 4; len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	text = Inline(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

func spell(text string, hide func(rune) bool) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if !strings.ContainsFunc(text, hide) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hide(r) {
			fmt.Fprintf(&b, `\u{%X}`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
