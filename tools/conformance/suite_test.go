package conformance

import (
	"os"
	"path/filepath"
	"testing"
)

// A scenario holds if it ran and nothing in it failed; a required one that does not is a fault, and so is a suite that says
// otherwise than its checks.
func TestLeg(t *testing.T) {
	for name, tc := range map[string]struct {
		checks string // of the required scenario a-b; empty: it did not run
		code   int
		passed int
		fault  bool
	}{
		"holds":                 {checks: `[{"id":"x","status":"SUCCESS"},{"id":"y","status":"INFO"}]`, passed: 1},
		"fails":                 {checks: `[{"id":"x","status":"SUCCESS"},{"id":"y","status":"FAILURE"}]`, code: 1, fault: true},
		"did not run":           {code: 1, fault: true},
		"checked nothing":       {checks: `[]`, fault: true},
		"the suite disagrees":   {checks: `[{"id":"x","status":"SUCCESS"}]`, code: 1, passed: 1, fault: true},
		"skipped is not enough": {checks: `[{"id":"x","status":"SKIPPED"}]`, fault: true},
	} {
		dir := t.TempDir()
		if tc.checks != "" {
			at := filepath.Join(dir, "server-a-b-2026-11-30T23-21-25-686Z")
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(at, "checks.json"), []byte(tc.checks), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l := newLeg(serverLeg, "r", "a-b")
		l.code = tc.code
		if err := l.read(dir); err != nil {
			t.Fatal(err)
		}
		if l.passed() != tc.passed || (l.fault() != nil) != tc.fault {
			t.Errorf("%s: %d passed, %v", name, l.passed(), l.fault())
		}
	}
}

func TestCallIn(t *testing.T) {
	for raw, want := range map[string]string{
		`{"id":1,"method":"tools/call","params":{"name":"a"}}`: "a",
		`{"id":"x","method":"resources/read"}`:                 "resources/read",
		`{"id":1,"method":"tools/list"}`:                       "",
		`{"method":"tools/call"}`:                              "",
		`[]`:                                                   "",
	} {
		if got, _, ok := callIn([]byte(raw)); got != want || ok != (want != "") {
			t.Errorf("%s: %q", raw, got)
		}
	}
}
