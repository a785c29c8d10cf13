package mcp

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// No two tools have one name, a name is the same every time, it fits what clients take, and it leads back to its tool: also
// with separators in the connection's name or the tool's, with what is too long, and with what looks like a shortened one.
func TestNoTwoToolsHaveOneName(t *testing.T) {
	part := rapid.StringMatching(`[a-z](_{0,2}[a-z0-9-]){0,12}(_[0-9a-f]{8})?`)
	rapid.Check(t, func(t *rapid.T) {
		full := func(label string) string {
			return part.Draw(t, label+" connection") + "." + part.Draw(t, label+" tool") + strings.Repeat("x", rapid.SampledFrom([]int{0, 40, 60}).Draw(t, label+" more"))
		}
		all := []string{full("a"), full("b")}
		if rapid.Bool().Draw(t, "move the separator") { // what would be read as the same
			con, tool, _ := strings.Cut(all[0], ".")
			all[0], all[1] = con+"."+"q__"+tool, con+"__q."+tool
		}
		if rapid.Bool().Draw(t, "take the other's short name") {
			var n names
			if taken, ok := plainly(n.of(all[0])); ok {
				all[1] = taken
			}
		}
		c, other := &conversation{}, &conversation{}
		for _, full := range all {
			name := c.names.of(full)
			if name != other.names.of(full) || len(name) > maxName {
				t.Fatalf("%s is %s and %s", full, name, other.names.of(full))
			}
			back, ok, err := c.find(name, func() error { t.Fatal("it was said"); return nil })
			if err != nil || !ok || back != full {
				t.Fatalf("%s is called %s, which leads to %s", full, name, back)
			}
		}
		if all[0] != all[1] && c.names.of(all[0]) == c.names.of(all[1]) {
			t.Fatalf("%q have one name", all)
		}
	})
}

// A name that only another instance has said is found by having all said again.
func TestNameFromElsewhere(t *testing.T) {
	there, here := &conversation{}, &conversation{}
	full := "con." + strings.Repeat("y", 64)
	name := there.names.of(full)
	if got, ok, err := here.find(name, func() error { here.names.of(full); return nil }); got != full || !ok || err != nil {
		t.Errorf("%s, %v, %v", got, ok, err)
	}
	if got, ok, err := here.find("con__no_00000000", func() error { return nil }); ok || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}
