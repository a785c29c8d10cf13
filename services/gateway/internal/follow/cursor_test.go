package follow

import (
	"testing"

	"github.com/execwarden/execwarden/schemas/ask"
)

func TestCursorText(t *testing.T) {
	c := ask.Cursor{Control: 12, Activity: 3456}
	if got, err := Parse(c.String()); err != nil || got != c || c.String() != "12:3456" {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range []string{"", "12", ":", "1:", ":1", "-1:2", "1:2:3", "a:b", " 1:2", "18446744073709551616:1"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is no cursor", bad)
		}
	}
}
