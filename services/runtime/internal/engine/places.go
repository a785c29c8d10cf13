package engine

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"unicode/utf16"

	"github.com/go-sourcemap/sourcemap"
)

// places knows where things are in the script as it was sent: lines and columns from 1, columns in UTF-16 units as
// editors of JavaScript count them.
type places struct {
	body   string
	mapped bool // positions come through a source map, which counts in such units; the parser counts bytes
}

// lineEnd is where a line ends in JavaScript.
var lineEnd = regexp.MustCompile("\r\n|[\n\r\u2028\u2029]")

// of is the place of a position in the wrapped text. What is after the script is at its end.
func (p places) of(line, col int) (int, int) {
	text, lines := p.line(line)
	if line > lines {
		return lines, units(text) + 1
	}
	if line == 1 {
		col -= len(opening)
	}
	if !p.mapped {
		col = 1 + units(text[:max(0, min(col-1, len(text)))])
	}
	return line, max(1, min(col, units(text)+1))
}

// offset is the place of a byte of the script.
func (p places) offset(at int) (line, col int) {
	start := 0
	line = 1
	for _, end := range lineEnd.FindAllStringIndex(p.body[:at], -1) {
		start = end[1]
		line++
	}
	return line, units(p.body[start:at]) + 1
}

// line gives a line's text, or the last one's, and how many lines there are up to it.
func (p places) line(number int) (text string, lines int) {
	rest := p.body
	for lines = 1; ; lines++ {
		end := lineEnd.FindStringIndex(rest)
		if end == nil {
			return rest, lines
		}
		if lines == number {
			return rest[:end[0]], lines
		}
		rest = rest[end[1]:]
	}
}

// after reports whether a line is beyond the script: the wrapper's.
func (p places) after(line int) bool {
	_, lines := p.line(line)
	return line > lines
}

func units(s string) int {
	n := 0
	for _, r := range s {
		n += max(1, utf16.RuneLen(r)) // a byte that is no character is shown as one
	}
	return n
}

// readMap reads esbuild's source map so that its columns count from 1, as the engine asks and is to be told. In the map
// they count from 0, and the engine would be told of the token after the one that it asks about.
func readMap(raw []byte) (*sourcemap.Consumer, error) {
	var m struct {
		Version  int      `json:"version"`
		Sources  []string `json:"sources"`
		Names    []string `json:"names"`
		Mappings string   `json:"mappings"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	// A segment is generated column, source, line, column, each as the difference to the one before; the generated
	// column begins anew in each line.
	lines := strings.Split(m.Mappings, ";")
	first := true
	for i, line := range lines {
		if line == "" {
			continue
		}
		segment, rest, more := strings.Cut(line, ",")
		fields, err := fromVLQ(segment)
		if err != nil {
			return nil, err
		}
		fields[0]++
		if first && len(fields) > 3 {
			fields[3]++
			first = false
		}
		lines[i] = toVLQ(fields)
		if more {
			lines[i] += "," + rest
		}
	}
	m.Mappings = strings.Join(lines, ";")
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return sourcemap.Parse("", text)
}

const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// fromVLQ decodes numbers as source maps write them: five bits a digit, the lowest first, the sign last of all.
func fromVLQ(s string) (fields []int, err error) {
	value, shift := 0, 0
	for i := range len(s) {
		d := strings.IndexByte(digits, s[i])
		if d < 0 || shift > 30 {
			return nil, errors.New("not a segment of a source map")
		}
		value |= d & 31 << shift
		shift += 5
		if d&32 != 0 {
			continue
		}
		if value&1 != 0 {
			value = -(value >> 1)
		} else {
			value >>= 1
		}
		fields = append(fields, value)
		value, shift = 0, 0
	}
	if len(fields) == 0 || shift != 0 {
		return nil, errors.New("not a segment of a source map")
	}
	return fields, nil
}

func toVLQ(fields []int) string {
	var b strings.Builder
	for _, f := range fields {
		v := f << 1
		if f < 0 {
			v = -f<<1 | 1
		}
		for {
			d := v & 31
			if v >>= 5; v != 0 {
				d |= 32
			}
			b.WriteByte(digits[d])
			if v == 0 {
				break
			}
		}
	}
	return b.String()
}
