// Package argdiff shows what changed between two versions of a call's arguments, argument by argument and line by line.
// Console and command line show edits with it.
package argdiff

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Op says what became of a line.
type Op byte

// What becomes of a line.
const (
	Same Op = ' '
	Gone Op = '-'
	New  Op = '+'
)

// Line is a line of an argument.
type Line struct {
	Op   Op
	Text string
}

// Change is one argument that is not what it was.
type Change struct {
	Name  string
	Lines []Line
}

// Changes compares two argument objects. It lists what changed in the order of the new ones, then what is gone.
// Arguments that are no object are compared as one text without a name.
func Changes(from, to json.RawMessage) []Change {
	was, okWas := members(from)
	is, okIs := members(to)
	if !okWas || !okIs {
		was, is = []member{{"", text(from)}}, []member{{"", text(to)}}
	}
	before := map[string]string{}
	for _, m := range was {
		before[m.name] = m.text
	}
	var out []Change
	now := map[string]bool{}
	for _, m := range is {
		now[m.name] = true
		old, had := before[m.name]
		switch {
		case !had:
			out = append(out, Change{m.name, all(New, m.text)})
		case old != m.text:
			out = append(out, Change{m.name, compare(strings.Split(old, "\n"), strings.Split(m.text, "\n"))})
		}
	}
	for _, m := range was {
		if !now[m.name] {
			out = append(out, Change{m.name, all(Gone, m.text)})
		}
	}
	return out
}

type member struct{ name, text string }

// members lists an object's members in its order, their text as people read it.
func members(raw json.RawMessage) ([]member, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var out []member
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			return nil, false
		}
		out = append(out, member{name, text(value)})
	}
	return out, true
}

// text is a value as people read it: text without its quotes, anything else as indented JSON. Text that would read as
// another value keeps its quotes: "7" is not 7.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && !json.Valid([]byte(s)) {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // 9007199254740993 stays what it is
	if dec.Decode(&v) != nil || enc.Encode(v) != nil {
		return string(raw)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func all(op Op, text string) (out []Line) {
	for _, l := range strings.Split(text, "\n") {
		out = append(out, Line{op, l})
	}
	return out
}

// maxTable bounds the work of one comparison, in cells. Longer texts are shown as all gone and all new.
const maxTable = 1 << 20

// compare finds the longest common subsequence of what is left between the common beginning and the common end.
func compare(from, to []string) (out []Line) {
	head := 0
	for head < len(from) && head < len(to) && from[head] == to[head] {
		out = append(out, Line{Same, from[head]})
		head++
	}
	tail := 0
	for tail < len(from)-head && tail < len(to)-head && from[len(from)-1-tail] == to[len(to)-1-tail] {
		tail++
	}
	out = append(out, between(from[head:len(from)-tail], to[head:len(to)-tail])...)
	for _, l := range from[len(from)-tail:] {
		out = append(out, Line{Same, l})
	}
	return out
}

func between(from, to []string) (out []Line) {
	i, j := 0, 0
	if len(from)*len(to) <= maxTable {
		// common[i][j] is how many lines from[i:] and to[j:] have in common.
		common := make([][]int, len(from)+1)
		for i := range common {
			common[i] = make([]int, len(to)+1)
		}
		for i := len(from) - 1; i >= 0; i-- {
			for j := len(to) - 1; j >= 0; j-- {
				if from[i] == to[j] {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
		for i < len(from) && j < len(to) {
			switch {
			case from[i] == to[j]:
				out = append(out, Line{Same, from[i]})
				i, j = i+1, j+1
			case common[i+1][j] >= common[i][j+1]:
				out = append(out, Line{Gone, from[i]})
				i++
			default:
				out = append(out, Line{New, to[j]})
				j++
			}
		}
	}
	for ; i < len(from); i++ {
		out = append(out, Line{Gone, from[i]})
	}
	for ; j < len(to); j++ {
		out = append(out, Line{New, to[j]})
	}
	return out
}
