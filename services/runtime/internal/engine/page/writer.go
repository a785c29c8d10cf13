package page

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// writer lays text out in lines. What is in front of a line, or opens a link, is written with the first text that needs
// it, so that an empty element leaves nothing.
type writer struct {
	marks bool
	base  *url.URL

	out     []byte
	breaks  int      // line ends to write before the next text
	gap     bool     // a space to write before the next text
	open    []string // marks to write before the next text
	fronts  []*front
	flat    int      // inside what has to stay on one line
	cell    int      // inside a cell of a table
	linked  bool     // inside a link
	marked  []string // the marks that the text is inside
	started bool     // something is on the line
}

// front is what stands in front of the lines of a list's item or a quote.
type front struct {
	first, rest string
	used        bool
}

// maxFronts is how many fronts are written; what is nested deeper stands beside it.
const maxFronts = 16

func (w *writer) full() bool { return len(w.out) > MaxText }

// line ends the line, and with 2 leaves an empty one. Where everything has to stay on one line it is a space.
func (w *writer) line(n int) {
	if w.flat > 0 {
		w.gap = true
		return
	}
	if i := len(w.fronts) - 1; i >= 0 && !w.fronts[i].used {
		n = min(n, 1) // what begins an item begins beside its mark
	}
	w.gap = false
	w.breaks = max(w.breaks, n)
}

// begin writes what has to stand before text.
func (w *writer) begin() {
	if w.breaks > 0 || len(w.out) == 0 {
		if len(w.out) == 0 {
			w.breaks = 0
		}
		for range w.breaks - 1 {
			w.newline()
			w.front(true)
		}
		if w.breaks > 0 {
			w.newline()
		}
		w.breaks, w.gap, w.started = 0, false, false
		w.front(false)
	}
	if w.gap && w.started {
		w.out = append(w.out, ' ')
	}
	w.gap = false
	for _, mark := range w.open {
		w.out = append(w.out, mark...)
	}
	w.open = w.open[:0]
}

func (w *writer) newline() {
	for len(w.out) > 0 && w.out[len(w.out)-1] == ' ' {
		w.out = w.out[:len(w.out)-1]
	}
	w.out = append(w.out, '\n')
}

// front writes the fronts of a line; of an empty one, only those that are there already.
func (w *writer) front(empty bool) {
	for _, f := range w.fronts[:min(len(w.fronts), maxFronts)] {
		switch {
		case f.used:
			w.out = append(w.out, f.rest...)
		case !empty:
			w.out = append(w.out, f.first...)
			f.used = true
		default:
			return
		}
	}
}

// raw writes text as it is.
func (w *writer) raw(s string) {
	w.begin()
	w.out = append(w.out, s...)
	w.started = true
}

// text writes text with its white space folded and, in Markdown, what would be a mark escaped.
func (w *writer) text(s string) {
	for i, word := range strings.FieldsFunc(s, space) {
		if i > 0 || space(rune(s[0])) {
			w.gap = true
		}
		w.word(word)
		if w.full() {
			return
		}
	}
	if s != "" && space(rune(s[len(s)-1])) {
		w.gap = true
	}
}

func space(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\f' }

func (w *writer) word(s string) {
	w.begin()
	if w.marks {
		s = escaped(s, !w.started, w.cell > 0)
	}
	w.out = append(w.out, s...)
	w.started = true
}

var numbered = regexp.MustCompile(`^([0-9]{1,9})([.)])$`)

// escaped keeps a word from being read as a mark.
func escaped(s string, first, cell bool) string {
	if first {
		switch {
		case strings.Trim(s, "#") == "" || s == "-" || s == "+" || strings.HasPrefix(s, ">") || strings.Trim(s, "-") == "" || strings.Trim(s, "=") == "":
			s = `\` + s
			return s
		case numbered.MatchString(s):
			return numbered.ReplaceAllString(s, `$1\$2`)
		}
	}
	if !strings.ContainsAny(s, "\\`*_[]<|~") {
		return s
	}
	var b strings.Builder
	runes := []rune(s)
	inWord := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]))
	}
	for i, r := range runes {
		switch r {
		case '\\', '`', '*', '[', ']', '<':
			b.WriteByte('\\')
		case '_':
			if !inWord(i-1) || !inWord(i+1) {
				b.WriteByte('\\')
			}
		case '~':
			if i+1 < len(runes) && runes[i+1] == '~' {
				b.WriteByte('\\')
			}
		case '|':
			if cell {
				b.WriteByte('\\')
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}

// around writes marks around an element's text, if it has any.
func (w *writer) around(mark string, n *html.Node) {
	if !w.marks || slices.Contains(w.marked, mark) {
		w.children(n)
		return
	}
	w.marked = append(w.marked, mark)
	w.flat++
	w.enclosed(mark, mark, n)
	w.flat--
	w.marked = w.marked[:len(w.marked)-1]
}

// within is around with two marks, for text that has to stay on one line.
func (w *writer) within(before, after string, n *html.Node) {
	w.flat++
	if w.marks {
		w.enclosed(before, after, n)
	} else {
		w.children(n)
	}
	w.flat--
}

func (w *writer) enclosed(before, after string, n *html.Node) {
	depth := len(w.open)
	w.open = append(w.open, before)
	w.children(n)
	if len(w.open) > depth {
		w.open = w.open[:depth] // there was no text
		return
	}
	w.out = append(w.out, after...) // a space that follows the text stays outside
}

// inside writes an element with something in front of its lines.
func (w *writer) inside(first, rest string, n *html.Node) {
	w.fronts = append(w.fronts, &front{first: first, rest: rest})
	w.children(n)
	w.fronts = w.fronts[:len(w.fronts)-1]
}

// code writes an element's text as code within a line.
func (w *writer) code(n *html.Node) {
	text := strings.Join(strings.Fields(content(n)), " ")
	if text == "" {
		return
	}
	if w.marks {
		ticks := strings.Repeat("`", longest(text)+1)
		if len(ticks) > 1 {
			text = " " + text + " "
		}
		if w.cell > 0 {
			text = strings.ReplaceAll(text, "|", `\|`)
		}
		text = ticks + text + ticks
	}
	w.raw(text)
}

var language = regexp.MustCompile(`(?:^|\s)lang(?:uage)?-([A-Za-z0-9+#.-]{1,20})(?:\s|$)`)

// fenced writes an element's text with its lines.
func (w *writer) fenced(n *html.Node) {
	text := strings.Trim(strings.ReplaceAll(content(n), "\r", ""), "\n")
	if strings.TrimSpace(text) == "" {
		return
	}
	if w.flat > 0 {
		w.code(n)
		return
	}
	fence := ""
	if w.marks {
		fence = strings.Repeat("`", max(3, longest(text)+1))
		classes := attribute(n, "class")
		if c := n.FirstChild; c != nil && c.DataAtom == atom.Code {
			classes += " " + attribute(c, "class")
		}
		lang := ""
		if m := language.FindStringSubmatch(classes); m != nil {
			lang = m[1]
		}
		w.raw(fence + lang)
		w.breaks = 1
	}
	for line := range strings.SplitSeq(text, "\n") {
		w.raw(line)
		w.breaks = 1
		if w.full() {
			return
		}
	}
	if w.marks {
		w.raw(fence)
	}
}

// longest is the length of the longest run of backticks.
func longest(s string) (most int) {
	run := 0
	for i := range len(s) {
		if s[i] != '`' {
			run = 0
			continue
		}
		run++
		most = max(most, run)
	}
	return most
}
