package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/unseen"
	"github.com/execwarden/execwarden/tools/execwarden/internal/runstate"
)

func TestScriptInput(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "input.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tc := range map[string]struct {
		file string
		args []string
		want string // or
		code int
	}{
		"nothing":          {"", nil, "", 0},
		"texts":            {"", []string{"a=1", "b==x", "c="}, `{"a":"1","b":"=x","c":""}`, 0},
		"a file":           {file(`{"n": [1, null]}`), nil, `{"n":[1,null]}`, 0},
		"both":             {file(`{"n": 1, "m": 2}`), []string{"n=x"}, `{"m":2,"n":"x"}`, 0},
		"no value":         {"", []string{"a"}, "", 2},
		"no name":          {"", []string{"=a"}, "", 2},
		"no object":        {file(`[1]`), nil, "", 2},
		"null":             {file(`null`), nil, "", 2},
		"no JSON":          {file(`{`), nil, "", 2},
		"no file":          {filepath.Join(t.TempDir(), "none"), nil, "", 2},
		"a large file":     {file(`{"a":"` + strings.Repeat("x", maxInput) + `"}`), nil, "", 2},
		"large altogether": {file(`{"a":"` + strings.Repeat("x", maxInput/2) + `"}`), []string{"b=" + strings.Repeat("x", maxInput/2)}, "", 2},
	} {
		got, err := scriptInput(tc.file, tc.args)
		if string(got) != tc.want || problem.ExitCode(err) != tc.code {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestValuesAreReadable(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":"\u003cb\u003e \u0026"}`: `{"a":"<b> &"}`,
		`"\\u003c \\\u003c"`:           `"\\u003c \\<"`,
		`"\n\u00e9\""`:                 `"\n\u00e9\""`,
		`"\u003`:                       `"\u003`, // no JSON, and no reason to fail
		`7`:                            `7`,
	} {
		if got := unseen.Legible([]byte(raw)); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

func TestExitCodesOfScripts(t *testing.T) {
	for name, tc := range map[string]struct {
		code string
		own  bool
		want int
	}{
		"the script throws":                  {"exception", true, 1},
		"a call of the script is denied":     {"denied", true, 1},
		"an artifact's name is not valid":    {"invalid", true, 1},
		"the script takes too long":          {"timeout", true, 6},
		"no grant allows the script":         {"denied", false, 3},
		"nobody decided about it in time":    {"expired", false, 1},
		"the script is not taken, too large": {"too_large", false, 2},
	} {
		err := failed(&runstate.Run{Run: "run_1", State: runstate.Failed, Code: tc.code, Message: "m"}, tc.own)
		if got := problem.ExitCode(err); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
		if m := problem.DetailOf(err).Message; m != "run_1 failed: "+tc.code+": m" {
			t.Errorf("%s: %s", name, m)
		}
	}
}
