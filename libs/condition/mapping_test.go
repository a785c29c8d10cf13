package condition_test

import (
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/problem"
)

func TestMapping(t *testing.T) {
	claims := map[string]any{"sub": "agent:nightly", "n": 1.0, "groups": []any{"ops"}, "act": map[string]any{"sub": "x"}}
	for text, want := range map[string]string{
		`"nightly"`:                            "nightly",
		`claims.sub.substring(6)`:              "nightly",
		`claims.act.sub`:                       "x",
		`"ops" in claims.groups ? "ops" : ""`:  "ops",
		`"dev" in claims.groups ? "dev" : ""`:  "",
		`claims.missing`:                       "",
		`claims.n`:                             "",
		`claims.sub.matches("^u") ? "u" : "v"`: "v",
	} {
		m, err := condition.ParseMapping(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := m.Of(claims)
		if got != want || (want == "") != (problem.CodeOf(err) == problem.Denied) {
			t.Errorf("%s is %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{``, `claims.`, `1`, `claims.sub == "x"`, `other.sub`, `"` + strings.Repeat("x", 5000) + `"`} {
		if _, err := condition.ParseMapping(text); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%.40s: %v, want invalid", text, err)
		}
	}
}
