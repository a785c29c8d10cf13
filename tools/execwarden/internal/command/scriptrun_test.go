package command

import (
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/tools/execwarden/internal/runstate"
)

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
