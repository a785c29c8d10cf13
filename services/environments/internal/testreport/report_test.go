package testreport_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/execwarden/execwarden/services/environments/internal/testreport"
)

// The dialects, as their runners write them.
func TestDialects(t *testing.T) {
	for file, want := range map[string]struct {
		passed, failed, skipped, errors int
		seconds                         string
		failures                        []string // name, file:line, a word of the message
	}{
		"surefire.xml": {2, 1, 1, 1, "1000.333", []string{
			"com.example.StockTest > refusesNegative|StockTest.java:42|but was: <-1>", "com.example.StockTest > reads|Stock.java:7|No such file"}},
		"pytest.xml": {1, 1, 1, 1, "0.006", []string{
			"tests.test_stock > test_negative[-1]|tests/test_stock.py:7|assert -1 == 0", "tests.test_stock > test_broken|tests/conftest.py:12|no stock"}},
		"jest.xml":      {1, 1, 1, 0, "0.010", []string{"stock refuses what is negative|/app/src/stock.test.js:10|Received: -1"}},
		"gotestsum.xml": {1, 1, 1, 0, "0.010", []string{"example.com/stock > TestNegative/minus_one|stock_test.go:21|-1, want 0"}},
		"gotest.json": {1, 2, 1, 1, "0.210", []string{
			"example.com/stock TestNegative/minus_one|stock_test.go:21|-1, want 0", "example.com/broken|./broken.go:5|undefined: nothing"}},
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var s testreport.Summary
		s.Add(file, "", raw)
		if s.Passed != want.passed || s.Failed != want.failed || s.Skipped != want.skipped || s.Errors != want.errors || fmt.Sprintf("%.3f", s.Duration) != want.seconds || len(s.Faults) > 0 || s.Truncated != "" {
			t.Errorf("%s: %+v", file, s.TestResults)
		}
		if len(s.Failures) != len(want.failures) {
			t.Errorf("%s: %d failures, want %d: %+v", file, len(s.Failures), len(want.failures), s.Failures)
			continue
		}
		for i, f := range s.Failures {
			words := strings.Split(want.failures[i], "|")
			if f.Name != words[0] || fmt.Sprintf("%s:%d", f.File, f.Line) != words[1] || !strings.Contains(f.Message, words[2]) {
				t.Errorf("%s: %+v, want %q", file, f, words)
			}
		}
	}
}

// What is damaged or made to harm is bounded, counted as far as it goes, and told.
func TestHostileReports(t *testing.T) {
	head := `<testsuite name="s"><testcase name="first"/>`
	bomb := "<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\">"
	for i := 'b'; i < 'k'; i++ {
		bomb += fmt.Sprintf("<!ENTITY %c \"%s\">", i, strings.Repeat(fmt.Sprintf("&%c;", i-1), 10))
	}
	bomb += "]>" + head + `<testcase name="bomb"><failure>&j;</failure></testcase></testsuite>`
	for name, c := range map[string]struct {
		text, format, fault, truncated string
		passed, failed                 int
	}{
		"nothing":                  {"", "", "no event", "", 0, 0},
		"text":                     {"ok  \texample.com/x\t0.1s\n", "", "no event", "", 0, 0},
		"another XML":              {"<html><body/></html>", "", "no test suite", "", 0, 0},
		"cut off":                  {head + `<testcase name="b"`, "", "no whole XML", "", 1, 0},
		"never closed":             {head, "", "no whole XML", "", 1, 0},
		"entities":                 {bomb, "", "no whole XML", "", 1, 0},
		"a file as an entity":      {`<!DOCTYPE x [<!ENTITY p SYSTEM "file:///etc/passwd">]>` + head + `<testcase name="x"><failure>&p;</failure></testcase></testsuite>`, "", "no whole XML", "", 1, 0},
		"deep":                     {strings.Repeat("<testsuite>", 100_000), "", "too deep", "", 0, 0},
		"many":                     {"<testsuite>" + strings.Repeat(`<testcase name="a"/>`, 100_010) + "</testsuite>", "", "", "more than 100000", 100_000, 0},
		"many failures":            {"<testsuite>" + strings.Repeat(`<testcase name="a"><failure/></testcase>`, 200) + "</testsuite>", "", "", "more failures", 0, 200},
		"a long line":              {head + `<testcase name="` + strings.Repeat("x", 10<<20) + `"><failure message="` + strings.Repeat("y", 1<<20) + `"/></testcase></testsuite>`, "", "", "", 1, 1},
		"colours":                  {head + "<testcase name=\"red\"><failure>\x1b[31mred\x1b[0m \xff\x00</failure></testcase></testsuite>", "", "", "", 1, 1},
		"another encoding":         {`<?xml version="1.0" encoding="utf-16"?>` + head + "</testsuite>", "", "encoding", "", 0, 0},
		"latin":                    {"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>" + head + "<testcase name=\"caf\xe9\"/></testsuite>", "", "", "", 2, 0},
		"cases in no suite":        {`<testcase name="a"/>`, "", "no test suite", "", 1, 0},
		"a case in a case":         {`<testsuite><testcase name="a"><testcase name="b"/></testcase></testsuite>`, "", "", "", 1, 0},
		"times that are none":      {`<testsuite><testcase name="a" time="NaN"/><testcase name="b" time="1e999"/><testcase name="c" time="-5"/></testsuite>`, "", "", "", 3, 0},
		"XML as go":                {head + "</testsuite>", "go", "no event", "", 0, 0},
		"a line of 10 MB":          {`{"Action":"output","Test":"x","Output":"` + strings.Repeat("z", 10<<20) + "\"}\n" + `{"Action":"pass","Test":"a"}`, "", "", "more than 1 MiB", 1, 0},
		"many events":              {strings.Repeat(`{"Action":"pass","Package":"p","Test":"a"}`+"\n", 100_010), "", "", "more than 100000", 100_000, 0},
		"events that are none":     {"{}\n{\"Action\":5}\n{\"Action\":\"dance\"}\n[1]\nnull\n{\"Action\":\"fail\",\"Test\":\"x\"}", "", "", "", 0, 1},
		"a test that says it all":  {strings.Repeat(`{"Action":"output","Package":"p","Test":"a","Output":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"}`+"\n", 100_000) + `{"Action":"fail","Package":"p","Test":"a"}`, "", "", "", 0, 1},
		"tests that never end":     {events(50_000), "", "", "", 0, 1},
		"marks that turn the text": {head + "<testcase name=\"a\u202eb\"><failure>\u202e</failure></testcase></testsuite>", "", "", "", 1, 1},
	} {
		var s testreport.Summary
		s.Add(name, c.format, []byte(c.text))
		if s.Passed != c.passed || s.Failed != c.failed || (c.fault == "") != (len(s.Faults) == 0) || c.fault != "" && !strings.Contains(s.Faults[0], c.fault) || (c.truncated == "") != (s.Truncated == "") || !strings.Contains(s.Truncated, c.truncated) {
			t.Errorf("%s: %.600s", name, fmt.Sprintf("%+v", s.TestResults))
		}
		mustBeBounded(t, &s)
	}
}

func events(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"Action":"output","Package":"p","Test":"t%d","Output":"%s\n"}`+"\n", i, strings.Repeat("o", 400))
	}
	return b.String() + `{"Action":"fail","Package":"p","Test":"t0"}`
}

func mustBeBounded(t *testing.T, s *testreport.Summary) {
	t.Helper()
	if len(s.Failures) > 100 || len(s.Faults) > 20 || s.Duration < 0 || s.Duration != s.Duration {
		t.Errorf("%d failures, %d faults, %f seconds", len(s.Failures), len(s.Faults), s.Duration)
	}
	for _, f := range s.Failures {
		if len(f.Name) > 310 || len(f.Message) > 2100 || len(f.File) > 310 || !utf8.ValidString(f.Name+f.Message+f.File) || strings.ContainsAny(f.Name+f.Message, "\x1b\x00\u202e") {
			t.Errorf("a failure is shown as %.400s", fmt.Sprintf("%+v", f))
		}
	}
}

func FuzzReport(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.*") // the pattern is right
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("", raw)
		f.Add("junit", raw)
		f.Add("go", raw)
	}
	f.Fuzz(func(t *testing.T, format string, raw []byte) {
		if !testreport.Valid(format) {
			return
		}
		var s testreport.Summary
		s.Add("fuzzed", format, raw)
		mustBeBounded(t, &s)
	})
}
