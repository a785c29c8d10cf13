package declare

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Most bytes of a comment: of a tool's description, and of an argument's.
const (
	maxToolDoc = 240
	maxArgDoc  = 120
)

// comment makes a comment of one line, "" of nothing. Line ends and hidden characters are gone before the comment's end is
// looked for, so that none comes to be by their going.
func comment(text string, most int) string {
	if text = tidy(text, most); text == "" {
		return ""
	}
	return "/** " + text + " */ "
}

// tidy makes one line of a text, without what reorders or hides, and cuts it.
func tidy(text string, most int) string {
	if limit := 8 * most; len(text) > limit { // no more of it is needed
		text = text[:limit]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case hidden(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	text = strings.Join(strings.Fields(text), " ")
	text = strings.ReplaceAll(text, "*/", "* /")
	if len(text) > most {
		text = strings.TrimRight(strings.ToValidUTF8(text[:most], ""), " ") + "…"
	}
	return text
}

// hidden says whether a character steers, hides or reorders text, or is a space or a line's end that looks like another.
func hidden(r rune) bool { return !unicode.IsPrint(r) }

// firstPart is a description's first paragraph: the rest is for whoever asks for the tool.
func firstPart(text string) string {
	text = strings.TrimSpace(text[:min(len(text), 64*maxToolDoc)])
	first, _, _ := strings.Cut(text, "\n\n")
	return first
}

// about is what a comment says of an argument: its description, and what its type cannot say.
func about(v *value) string {
	var parts []string
	if d := v.get("description"); d.is('"') {
		if text := strings.TrimSuffix(tidy(firstPart(d.text), maxArgDoc), "."); text != "" {
			parts = append(parts, text)
		}
	}
	if f := v.get("format"); f.is('"') && len(f.text) <= 40 {
		parts = append(parts, f.text)
	}
	if r := span(v); r != "" {
		parts = append(parts, r)
	}
	if d := v.get("default"); d != nil && (d.kind == '"' || d.kind == '0' || d.kind == 't' || d.kind == 'f') && len(d.text) <= 40 && (d.kind != '"' || d.text != "") {
		parts = append(parts, "default "+literal(d))
	}
	return strings.Join(parts, "; ")
}

func span(v *value) string {
	low, high := v.get("minimum"), v.get("maximum")
	if high == nil && (low.is('0') && (low.text == "0" || low.text == "1")) {
		return "" // as everybody would guess
	}
	bound := func(b *value) string {
		if b.is('0') && len(b.text) <= 20 {
			return b.text
		}
		return ""
	}
	switch from, to := bound(low), bound(high); {
	case from != "" && to != "":
		return from + ".." + to
	case from != "":
		return ">= " + from
	case to != "":
		return "<= " + to
	}
	return ""
}

// literal writes a scalar as TypeScript does.
func literal(v *value) string {
	if v.kind == '"' {
		return quoted(v.text)
	}
	return v.text
}

// quoted writes a text in quotes, hidden characters spelled out.
func quoted(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		return `""` // no text fails
	}
	var b strings.Builder
	for _, r := range string(raw) {
		if hidden(r) {
			fmt.Fprintf(&b, `\u{%X}`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(b.String())
}

var identifier = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// key writes a property's name.
func key(name string) string {
	if identifier.MatchString(name) {
		return name
	}
	return quoted(name)
}

// method writes a tool's name. A few words mean something else in front of a parameter list.
func method(name string) string {
	if name == "new" || name == "constructor" {
		return quoted(name)
	}
	return key(name)
}
