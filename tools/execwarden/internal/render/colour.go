package render

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Tone is how a text is meant. A tone has its colour on a terminal, and never says anything that the text does not.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Faint
	Good
	Waits
	Bad
)

var codes = map[Tone]string{Faint: "\x1b[2m", Good: "\x1b[32m", Waits: "\x1b[33m", Bad: "\x1b[31m"}

const reset = "\x1b[0m"

// Coloured says whether w is a terminal whose user wants colours (https://no-color.org).
func Coloured(w io.Writer, getenv func(string) string) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// paint colours a text that has been made visible before: its own codes would be spelt out.
func (p *Printer) paint(tone Tone, text string) string {
	if code := codes[tone]; p.Colour && code != "" {
		return code + text + reset
	}
	return text
}
