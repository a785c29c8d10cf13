package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
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

// The suite's scenarios that want to see nothing hold only when what was refused was refused for the right reason.
func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		ends map[string]error
		held bool
	}{
		"all as they should":        {map[string]error{"tools_call": nil, "auth/resource-mismatch": errors.New("x, and the connection's URL is not below that")}, true},
		"refused for another":       {map[string]error{"tools_call": nil, "auth/resource-mismatch": errors.New("connection refused")}, false},
		"not refused":               {map[string]error{"tools_call": nil, "auth/resource-mismatch": nil}, false},
		"refused what goes through": {map[string]error{"tools_call": errors.New("x"), "auth/resource-mismatch": errors.New("x, and the connection's URL is not below that")}, false},
		"not tried":                 {map[string]error{"tools_call": nil}, false},
	} {
		l := newLeg(clientLeg, "r", "tools_call", "auth/resource-mismatch")
		l.ran["tools_call"], l.ran["auth/resource-mismatch"] = true, true
		(&trials{ends: tc.ends}).judge(l)
		if (l.fault() == nil) != tc.held {
			t.Errorf("%s: %v", name, l.fault())
		}
	}
}

func TestScenarioOf(t *testing.T) {
	const at = "-2026-11-30T23-21-25-686Z"
	for folder, want := range map[string][2]string{
		"server-a-b" + at:               {serverLeg, "a-b"},
		"authorization-server-a-b" + at: {authorizationLeg, "a-b"},
		"auth/iss-supported" + at:       {clientLeg, "auth/iss-supported"},
		"server-like" + at:              {clientLeg, "server-like"},
		"short":                         {clientLeg, ""},
	} {
		if got := newLeg(want[0], "r").scenarioOf(folder); got != want[1] {
			t.Errorf("%s: %q", folder, got)
		}
	}
}

func TestLines(t *testing.T) {
	var heard []string
	w := &lines{hear: func(line string) { heard = append(heard, line) }}
	for _, part := range []string{"a", "b\nc", "\n", "\nd\ne"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Error(n, err)
		}
	}
	if !slices.Equal(heard, []string{"ab", "c", "", "d"}) {
		t.Errorf("%q", heard)
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
