package testreport

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// Bounds of go test -json.
const (
	maxLine = 1 << 20  // bytes; longer ones are passed over
	maxKept = 16 << 20 // of all output of tests that have not ended

	maxTestName = 4 << 10 // bytes
	maxInside   = 32      // tests that one is inside of: each is remembered by its whole name
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build's output
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

type testName struct{ pkg, test string }

// goTest reads go test -json. Lines that are no events are what the commands around it print, and are passed over.
func (s *Summary) goTest(raw []byte) error {
	var (
		said   = map[testName]string{} // the end of what a test printed
		kept   int
		inside = map[testName]bool{} // has a failed subtest, which says why; of a package, a failed test
		seen   bool
		long   bool
	)
	for len(raw) > 0 {
		line, rest, _ := bytes.Cut(raw, []byte("\n"))
		raw = rest
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' {
			continue
		}
		if len(line) > maxLine {
			long = true
			continue
		}
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			continue
		}
		if len(e.Test) > maxTestName || len(e.Package) > maxTestName || strings.Count(e.Test, "/") > maxInside {
			long = true
			continue
		}
		seen = true
		at := testName{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			if e.Action == "build-output" {
				at = testName{e.ImportPath, ""}
			}
			if noise(e.Output) || kept > maxKept {
				continue
			}
			text := said[at] + e.Output
			if len(text) > 2*maxMessage {
				text = text[len(text)-2*maxMessage:]
			}
			kept += len(text) - len(said[at])
			said[at] = text
		case "pass", "fail", "skip":
			message := said[at]
			kept -= len(message)
			delete(said, at)
			if e.Test == "" {
				if e.Action != "fail" || inside[testName{e.Package, ""}] {
					continue
				}
				message += said[testName{e.FailedBuild, ""}] + said[testName{e.Package, ""}]
			}
			t := test{name: strings.TrimSpace(e.Package + " " + e.Test), seconds: e.Elapsed, verdict: map[string]verdict{"pass": passed, "fail": failed, "skip": skipped}[e.Action]}
			if e.Test == "" {
				t.verdict = broken
			} else if strings.Contains(e.Test, "/") {
				t.seconds = 0 // its parent's time has it
			}
			if t.verdict == failed {
				inside[testName{e.Package, ""}] = true
				for i := strings.LastIndexByte(e.Test, '/'); i > 0; i = strings.LastIndexByte(e.Test[:i], '/') {
					inside[testName{e.Package, e.Test[:i]}] = true
				}
			}
			t.message = message
			if t.verdict == failed && inside[at] {
				// The subtest is shown, and this one is counted alone.
				if s.cases++; s.cases > maxCases {
					s.Truncate("there are more tests than are counted")
					return nil
				}
				s.Failed++
				s.Duration += max(t.seconds, 0)
				continue
			}
			if !s.count(t) {
				return nil
			}
		}
	}
	if long {
		s.Truncate("a line of more than 1 MiB, or with a name that is too long, was passed over")
	}
	if !seen {
		return errors.New("there is no event of go test -json in it")
	}
	return nil
}

// noise is what go test says around what a test prints.
func noise(line string) bool {
	line = strings.TrimSpace(line)
	for _, prefix := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}
