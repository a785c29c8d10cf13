package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/schemas/machine"
)

// Reports are read from files, by a pattern, and from what a command printed, also while it runs.
func TestTestResults(t *testing.T) {
	b := newBox(t, "")
	for name, text := range map[string]string{
		"reports/TEST-a.xml": `<testsuite name="a"><testcase name="one"/><testcase name="two"><failure message="a.py:7: no"/></testcase></testsuite>`,
		"reports/TEST-b.xml": `<testsuite name="b"><testcase name="three"/></testsuite>`,
		"reports/TEST-c.xml": `nothing`,
	} {
		if err := os.MkdirAll(filepath.Join(b.volume, "reports"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.volume, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := result[machine.TestResults](t, b.do(b.order("test_results", machine.TestResultsArgs{Glob: "**/TEST-*.xml"})))
	if got.Passed != 2 || got.Failed != 1 || got.Files != 3 || len(got.Faults) != 1 || len(got.Failures) != 1 || got.Failures[0].File != "a.py" || got.Failures[0].Line != 7 {
		t.Errorf("by a pattern: %+v", got)
	}
	got = result[machine.TestResults](t, b.do(b.order("test_results", machine.TestResultsArgs{Paths: []string{"reports/TEST-b.xml", "../../etc/passwd", "none.xml"}})))
	if got.Passed != 1 || got.Files != 1 || len(got.Faults) != 2 {
		t.Errorf("by path: %+v", got)
	}
	e := b.sh(`echo '{"Action":"run","Package":"p","Test":"T"}'; echo noise >&2; for i in $(seq 3000); do echo '{"Action":"pass","Package":"p","Test":"T"}'; done; echo '{"Action":"fail","Package":"p","Test":"U"}'; exit 1`)
	got = result[machine.TestResults](t, b.do(b.order("test_results", machine.TestResultsArgs{Exec: e.Exec})))
	if got.Passed != 3000 || got.Failed != 1 || got.Running || got.Truncated != "" {
		t.Errorf("of a command: %+v", got)
	}
	e = result[machine.Exec](t, b.do(b.order("exec", machine.ExecArgs{Background: true, Command: `echo '{"Action":"pass","Package":"p","Test":"T"}'; sleep 600`})))
	if out := result[machine.Output](t, b.do(b.order("exec_read", machine.ExecReadArgs{Exec: e.Exec, Wait: 20}))); out.Next == 0 {
		t.Fatalf("%+v", out)
	}
	if got = result[machine.TestResults](t, b.do(b.order("test_results", machine.TestResultsArgs{Exec: e.Exec}))); got.Passed != 1 || !got.Running {
		t.Errorf("of one that runs: %+v", got)
	}
	for name, a := range map[string]machine.TestResultsArgs{
		"nothing": {}, "two": {Glob: "*", Exec: e.Exec}, "another format": {Glob: "*", Format: "tap"}, "no file": {Glob: "*.nothing"}, "no command": {Exec: "call_0"}, "no pattern": {Glob: "[["},
	} {
		if got := b.do(b.order("test_results", a)); !got.ToolError || !strings.Contains(string(got.Result), "error") {
			t.Errorf("%s: %+v %s", name, got, got.Result)
		}
	}
}
