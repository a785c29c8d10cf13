package render

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Grid is a table: a heading and rows of as many cells.
type Grid struct {
	Columns []Column
	Rows    [][]Cell
}

// Column is a heading. A wide one is shown only with -o wide.
type Column struct {
	Name string
	Wide bool
}

// Cell is a text with its tone.
type Cell struct {
	Text string
	Tone Tone
}

// Text makes a plain cell.
func Text(text string) Cell { return Cell{Text: text} }

// maxCell is the widest cell of an ordinary table, in characters.
const maxCell = 60

// Row adds a row.
func (g *Grid) Row(cells ...Cell) { g.Rows = append(g.Rows, cells) }

// grid writes a table whose columns are as wide as their widest cell. The heading is there without rows too: no rows
// is an answer.
func (p *Printer) grid(g *Grid) error {
	var columns []int
	for i, c := range g.Columns {
		if !c.Wide || p.Format == Wide {
			columns = append(columns, i)
		}
	}
	rows := make([][]Cell, 0, len(g.Rows)+1)
	heading := make([]Cell, len(g.Columns))
	for i, c := range g.Columns {
		heading[i] = Cell{c.Name, Faint}
	}
	rows = append(rows, heading)
	for _, row := range g.Rows {
		shown := make([]Cell, len(row))
		for i, c := range row {
			shown[i] = Cell{p.cell(c.Text), c.Tone}
		}
		rows = append(rows, shown)
	}
	width := make([]int, len(g.Columns))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c.Text))
		}
	}
	var b bytes.Buffer
	for _, row := range rows {
		var line strings.Builder
		for n, i := range columns {
			line.WriteString(p.paint(row[i].Tone, row[i].Text))
			if n < len(columns)-1 {
				line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(row[i].Text)+2))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := p.Out.Write(b.Bytes())
	return err
}

func (p *Printer) cell(text string) string {
	if text == "" {
		return "-"
	}
	if p.Format == Wide {
		return Inline(text)
	}
	return Short(text, maxCell)
}
