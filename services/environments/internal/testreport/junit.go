package testreport

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// junit reads JUnit XML, in the dialects that are about: there is no one schema. What is not known of it is passed over.
// Entities other than XML's own are not known, and no document is fetched or expanded.
func (s *Summary) junit(raw []byte) error {
	d := xml.NewDecoder(bytes.NewReader(printable(raw)))
	d.CharsetReader = latin
	var (
		depth   int
		suites  []string // names, of the suites that are open
		now     *test
		text    strings.Builder // of the element that says why
		reading bool
		seen    bool
	)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && depth == 0 {
			if !seen {
				return errors.New("there is no test suite in it")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is no whole XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth > maxDepth {
				return errors.New("it is nested too deep")
			}
			attr := attributes(t.Attr)
			switch t.Name.Local {
			case "testsuites", "testsuite":
				seen = true
				suites = append(suites, attr["name"])
			case "testcase":
				now = newCase(suites, attr)
			case "failure", "error", "skipped":
				if now != nil {
					now.end(t.Name.Local, attr)
					text.Reset()
					reading = true
				}
			}
		case xml.EndElement:
			depth--
			switch t.Name.Local {
			case "testsuites", "testsuite":
				if len(suites) > 0 {
					suites = suites[:len(suites)-1]
				}
			case "failure", "error", "skipped":
				if reading && now != nil && now.verdict != skipped {
					if len(now.message) < 4*maxMessage {
						now.message = strings.TrimSpace(now.message + "\n" + text.String())
					}
				}
				reading = false
			case "testcase":
				if now != nil && !s.count(*now) {
					return nil
				}
				now = nil
			}
		case xml.CharData:
			if reading && text.Len() < 4*maxMessage {
				text.Write(t[:min(len(t), 4*maxMessage)])
			}
		}
	}
}

// end notes that a test did not just pass. A failure is its verdict also where it broke down afterwards.
func (t *test) end(how string, attr map[string]string) {
	switch {
	case how == "failure":
		t.verdict = failed
	case how == "error" && t.verdict != failed:
		t.verdict = broken
	case how == "skipped" && t.verdict == passed:
		t.verdict = skipped
	}
	if how != "skipped" && attr["message"] != "" && len(t.message) < 4*maxMessage {
		t.message = strings.TrimSpace(t.message + "\n" + attr["message"])
	}
}

func newCase(suites []string, attr map[string]string) *test {
	t := &test{name: attr["name"], file: attr["file"]}
	switch class := attr["classname"]; {
	case class != "" && !strings.HasPrefix(t.name, class):
		t.name = class + " > " + t.name
	case class == "" && len(suites) > 0 && suites[len(suites)-1] != "":
		t.name = suites[len(suites)-1] + " > " + t.name
	}
	t.line, _ = strconv.Atoi(attr["line"])                                           // a dialect's own; 0 is none
	t.seconds, _ = strconv.ParseFloat(strings.ReplaceAll(attr["time"], ",", ""), 64) // surefire writes 1,234.5
	return t
}

func attributes(list []xml.Attr) map[string]string {
	out := make(map[string]string, len(list))
	for _, a := range list {
		out[a.Name.Local] = a.Value
	}
	return out
}

// printable leaves out what XML does not allow and runners write all the same: colours, mostly. Without it a report of a
// thousand tests is worth nothing for one escape character.
func printable(raw []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, raw)
}

// latin reads the encodings that are XML's own and those that are like the first half of them.
func latin(label string, in io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "utf-8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252":
		return in, nil // what is not UTF-8 was replaced
	}
	return nil, fmt.Errorf("encoding %.40q is not read", label)
}
