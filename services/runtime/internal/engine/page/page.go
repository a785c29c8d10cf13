package page

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Bounds of a page and of what it becomes, in bytes.
const (
	MaxPage = 2 << 20
	MaxText = 4 << 20
)

// Markdown gives HTML as Markdown, with links and images resolved against base. What is text already stays as it is.
func Markdown(body []byte, contentType, base string) (string, error) {
	return convert(body, contentType, base, true)
}

// Plain gives the text of HTML without marks.
func Plain(body []byte, contentType string) (string, error) {
	return convert(body, contentType, "", false)
}

var errLarge = fmt.Errorf("the text of the page is larger than %d bytes", MaxText)

func convert(body []byte, contentType, base string, marks bool) (string, error) {
	switch kindOf(body, contentType) {
	case readable:
		return Text(body, contentType)
	case binary:
		return "", fmt.Errorf("the response is %.80s, which is no text; read it with bytes()", contentType)
	}
	if len(body) > MaxPage {
		return "", fmt.Errorf("the page is %d bytes of HTML; at most %d are read: use text()", len(body), MaxPage)
	}
	text, err := source(body, contentType)
	if err != nil {
		return "", err
	}
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return "", errors.New("the page's elements are nested too deeply to be read; use text()")
	}
	w := &writer{marks: marks}
	w.base, _ = url.Parse(base) // without one, links stay as they are
	w.node(root)
	if w.full() {
		return "", errLarge
	}
	return string(w.out), nil
}

// dropped elements hold no text of the page.
var dropped = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Template: true, atom.Iframe: true, atom.Object: true, atom.Svg: true,
	atom.Math: true, atom.Head: true, atom.Select: true, atom.Textarea: true, atom.Canvas: true, atom.Audio: true, atom.Video: true,
}

// blocks begin on a line of their own, after an empty one.
var blocks = map[atom.Atom]bool{
	atom.P: true, atom.Ul: true, atom.Ol: true, atom.Dl: true, atom.Blockquote: true, atom.Table: true, atom.Pre: true, atom.Figure: true,
	atom.Section: true, atom.Article: true, atom.Main: true, atom.Header: true, atom.Footer: true, atom.Nav: true, atom.Aside: true,
	atom.Form: true, atom.Fieldset: true, atom.Details: true, atom.Address: true, atom.Hr: true,
	atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true, atom.H6: true,
}

// lines begin on a line of their own.
var lines = map[atom.Atom]bool{
	atom.Div: true, atom.Li: true, atom.Dt: true, atom.Dd: true, atom.Tr: true, atom.Caption: true, atom.Figcaption: true, atom.Summary: true, atom.Legend: true,
}

// node writes a node with what is in it. The parser bounds how deep that goes.
func (w *writer) node(n *html.Node) {
	if w.full() {
		return
	}
	switch n.Type {
	case html.TextNode:
		w.text(n.Data)
	case html.DocumentNode:
		w.children(n)
	case html.ElementNode:
		if dropped[n.DataAtom] || has(n, "hidden") {
			return
		}
		switch {
		case blocks[n.DataAtom]:
			w.line(2)
			w.element(n)
			w.line(2)
		case lines[n.DataAtom]:
			w.line(1)
			w.element(n)
			w.line(1)
		default:
			w.element(n)
		}
	}
}

func (w *writer) children(n *html.Node) {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		w.node(c)
	}
}

func (w *writer) element(n *html.Node) {
	switch n.DataAtom {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.within("#######"[:n.Data[1]-'0']+" ", "", n)
	case atom.B, atom.Strong:
		w.around("**", n)
	case atom.I, atom.Em:
		w.around("*", n)
	case atom.Del, atom.S:
		w.around("~~", n)
	case atom.A:
		w.link(n)
	case atom.Img:
		w.image(n)
	case atom.Br:
		w.line(1)
	case atom.Hr:
		if w.marks {
			w.raw("---")
		}
	case atom.Code, atom.Kbd, atom.Samp:
		w.code(n)
	case atom.Pre:
		w.fenced(n)
	case atom.Blockquote:
		if !w.marks {
			w.children(n)
			return
		}
		w.inside("> ", "> ", n)
	case atom.Ul:
		w.list(n, func(int) string { return "- " })
	case atom.Ol:
		w.list(n, func(i int) string { return fmt.Sprintf("%d. ", i) })
	case atom.Dd:
		w.inside("  ", "  ", n)
	case atom.Table:
		w.table(n)
	default:
		w.children(n)
	}
}

func (w *writer) list(n *html.Node, marker func(i int) string) {
	i := 0
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.DataAtom != atom.Li || has(c, "hidden") {
			w.node(c)
			continue
		}
		i++
		first := marker(i)
		w.line(1)
		w.inside(first, strings.Repeat(" ", len(first)), c)
		w.line(1)
	}
}

// table writes rows. A table within a cell, as pages are laid out with, is text.
func (w *writer) table(n *html.Node) {
	if w.flat > 0 {
		w.children(n)
		return
	}
	rows := 0
	var each func(n *html.Node)
	each = func(n *html.Node) {
		for c := n.FirstChild; c != nil && !w.full(); c = c.NextSibling {
			switch c.DataAtom {
			case atom.Thead, atom.Tbody, atom.Tfoot:
				each(c)
			case atom.Tr:
				rows++
				w.row(c, rows == 1)
			default:
				w.node(c)
			}
		}
	}
	each(n)
}

func (w *writer) row(n *html.Node, first bool) {
	w.line(1)
	cells := 0
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.DataAtom != atom.Td && c.DataAtom != atom.Th {
			continue
		}
		cells++
		switch {
		case w.marks:
			w.raw("|")
			w.gap = true
		case cells > 1:
			w.gap = false
			w.raw("\t")
			w.started = false // no space follows it
		}
		w.flat++
		w.cell++
		w.children(c)
		w.cell--
		w.flat--
		w.gap = w.marks
	}
	if w.marks && cells > 0 {
		w.raw("|")
		if first {
			w.line(1)
			w.raw("|" + strings.Repeat(" --- |", min(cells, 1000)))
		}
	}
	w.gap = false
	w.line(1)
}

func (w *writer) link(n *html.Node) {
	to := w.resolve(attribute(n, "href"))
	if !w.marks || to == "" || w.linked {
		w.children(n)
		return
	}
	w.linked = true
	w.within("[", "]("+to+")", n)
	w.linked = false
}

func (w *writer) image(n *html.Node) {
	alt := strings.Join(strings.Fields(attribute(n, "alt")), " ")
	src := w.resolve(attribute(n, "src"))
	switch {
	case alt == "":
	case w.marks && src != "":
		w.raw("![" + escaped(alt, false, w.cell > 0) + "](" + src + ")")
	default:
		w.text(alt)
	}
}

// resolve gives an address that a reader can follow: http, https or mail. A page's scripts and inline data are none.
func (w *writer) resolve(ref string) string {
	const most = 2 << 10
	u, err := url.Parse(strings.TrimSpace(ref))
	if err != nil || ref == "" || len(ref) > most || strings.HasPrefix(ref, "#") {
		return ""
	}
	if w.base != nil {
		u = w.base.ResolveReference(u)
	}
	if u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto" {
		return ""
	}
	return strings.NewReplacer("(", "%28", ")", "%29", " ", "%20", "\n", "", "\r", "", "<", "%3C", ">", "%3E").Replace(u.String())
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name && a.Namespace == "" {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	for _, a := range n.Attr {
		if a.Key == name {
			return true
		}
	}
	return false
}

// content is the text of an element as it stands.
func content(n *html.Node) string {
	var b strings.Builder
	var each func(n *html.Node)
	each = func(n *html.Node) {
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			switch {
			case c.Type == html.TextNode:
				b.WriteString(c.Data)
			case c.DataAtom == atom.Br:
				b.WriteByte('\n')
			case !dropped[c.DataAtom]:
				each(c)
			}
		}
	}
	each(n)
	return b.String()
}
