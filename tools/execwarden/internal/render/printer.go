package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/execwarden/execwarden/libs/problem"
)

// Printer writes the data of one command.
type Printer struct {
	Out    io.Writer
	Format Format
	Colour bool
}

// List writes items: as a table for people, as one value {name: items} for programs, as lines in JSONL.
func List[T any](p *Printer, name string, items []T, table func([]T) *Grid) error {
	switch p.Format {
	case Table, Wide:
		return p.grid(table(items))
	case JSONL:
		for _, item := range items {
			if err := p.JSONLine(item); err != nil {
				return err
			}
		}
		return nil
	}
	if items == nil {
		items = []T{}
	}
	return p.Value(map[string]any{name: items})
}

// One writes a single thing: by text for people, as one value for programs.
func (p *Printer) One(item any, text func(io.Writer)) error {
	if !p.Format.ForPeople() {
		return p.Value(item)
	}
	w := bufio.NewWriter(p.Out)
	text(w)
	return w.Flush()
}

// Value writes a value for programs.
func (p *Printer) Value(v any) error {
	raw, err := encode(v)
	if err != nil {
		return err
	}
	switch p.Format {
	case YAML:
		raw, err = toYAML(raw)
	case JSONL:
		raw, err = compact(raw)
	default:
		raw, err = indent(raw)
	}
	if err != nil {
		return err
	}
	_, err = p.Out.Write(raw)
	return err
}

// JSONLine writes a value as one line of JSON, at once.
func (p *Printer) JSONLine(v any) error {
	raw, err := encode(v)
	if err == nil {
		raw, err = compact(raw)
	}
	if err == nil {
		_, err = p.Out.Write(raw)
	}
	return err
}

// Line writes one line for people, at once. Its parts have to be visible.
func (p *Printer) Line(format string, args ...any) error {
	_, err := fmt.Fprintf(p.Out, format+"\n", args...)
	return err
}

func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // nobody puts this into a page, and people read it
	if err := enc.Encode(v); err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the answer cannot be written as JSON")
	}
	return b.Bytes(), nil
}

// Toned writes a text as one line, at once, behind an indent.
func (p *Printer) Toned(indent string, tone Tone, text string) error {
	return p.Line("%s%s", indent, p.paint(tone, Inline(text)))
}
