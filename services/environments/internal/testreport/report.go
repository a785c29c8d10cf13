// Package testreport reads what test runners report. A report is written by whatever ran on a machine: it is bounded in
// every direction, and what is no report is told and not guessed at.
package testreport

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/execwarden/execwarden/schemas/machine"
)

// Bounds of what is read and shown.
const (
	MaxReport   = 16 << 20 // bytes of one report
	MaxAll      = 64 << 20 // of all of them
	maxCases    = 100_000
	maxDepth    = 64
	maxFailures = 100
	maxFaults   = 20
	maxMessage  = 2 << 10 // bytes
	maxName     = 300
)

// Formats.
const (
	Auto  = "auto"
	JUnit = "junit"
	Go    = "go"
)

// Summary adds reports up. Its zero value is empty.
type Summary struct {
	machine.TestResults
	cases int
}

// Valid says whether a format is one; empty is Auto.
func Valid(format string) bool {
	return format == "" || format == Auto || format == JUnit || format == Go
}

// Add reads one report. One that is damaged counts up to where it is, and is told.
func (s *Summary) Add(name, format string, raw []byte) {
	if format == "" || format == Auto {
		format = Go
		if trimmed := bytes.TrimLeftFunc(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")), unicode.IsSpace); bytes.HasPrefix(trimmed, []byte("<")) {
			format = JUnit
		}
	}
	var err error
	if format == JUnit {
		err = s.junit(raw)
	} else {
		err = s.goTest(raw)
	}
	if err != nil {
		s.Fault(name, err.Error())
	}
}

// Fault notes a report that could not be read.
func (s *Summary) Fault(name, why string) {
	if len(s.Faults) < maxFaults {
		s.Faults = append(s.Faults, clip(name, maxName)+": "+clip(why, maxName))
	}
}

// Truncate notes why there may be more than was read. The first reason stays.
func (s *Summary) Truncate(why string) {
	if s.Truncated == "" {
		s.Truncated = why
	}
}

// verdict is how one test ended.
type verdict int

const (
	passed verdict = iota
	failed
	broken
	skipped
)

// test is one test's report.
type test struct {
	name, file, message string
	line                int
	seconds             float64
	verdict             verdict
}

// count adds a test. It says whether another one may come.
func (s *Summary) count(t test) bool {
	if s.cases++; s.cases > maxCases {
		s.Truncate("there are more than " + strconv.Itoa(maxCases) + " tests")
		return false
	}
	if t.seconds > 0 && t.seconds < 1e9 {
		s.Duration += t.seconds
	}
	switch t.verdict {
	case passed:
		s.Passed++
	case skipped:
		s.Skipped++
	case failed:
		s.Failed++
		s.show(t)
	case broken:
		s.Errors++
		s.show(t)
	}
	return true
}

func (s *Summary) show(t test) {
	if len(s.Failures) == maxFailures {
		s.Truncate("there are more failures than are shown")
		return
	}
	if t.file == "" {
		t.file, t.line = placeIn(t.message)
	}
	s.Failures = append(s.Failures, machine.TestFailed{Name: clip(t.name, maxName), File: clip(t.file, maxName), Line: t.line, Message: clip(t.message, maxMessage)})
}

// place is how runners write where something failed: a_test.go:12, (src/a.test.js:10:5), FooTest.java:42, File "a.py", line 3.
var place = regexp.MustCompile(`([A-Za-z0-9_./\\@-]*[A-Za-z0-9_]\.[A-Za-z]{1,5}):([0-9]{1,7})\b|File "([^"\n]{1,300})", line ([0-9]{1,7})`)

// placeIn finds the first place that a message names, outside of what was installed.
func placeIn(message string) (file string, line int) {
	for _, m := range place.FindAllStringSubmatch(message[:min(len(message), 64<<10)], 20) {
		if file = m[1] + m[3]; strings.Contains(file, "node_modules") || strings.Contains(file, "site-packages") {
			continue
		}
		line, _ = strconv.Atoi(m[2] + m[4]) // digits, few of them
		return file, line
	}
	return "", 0
}

// clip shortens a text that others made to whole characters, without what moves a cursor.
func clip(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), 4*most)], "\uFFFD"))
	text = strings.TrimSpace(text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " [...]"
}
