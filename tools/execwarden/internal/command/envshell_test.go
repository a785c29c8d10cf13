package command

import "testing"

// Only ~. at the start of a line leaves; everything else arrives as it was typed, however it comes in pieces.
func TestEscape(t *testing.T) {
	for typed, want := range map[string]struct {
		out    string
		leaves bool
	}{
		"ls\r": {"ls\r", false}, "~.": {"", true}, "ls\r~.rest": {"ls\r", true}, "a~.": {"a~.", false}, "\r~~.": {"\r~.", false}, "\r~x~.": {"\r~x~.", false}, "~\r~.": {"~\r", true},
	} {
		for _, size := range []int{1, 100} {
			e, out, leaves := escape{fresh: true}, "", false
			for at := 0; at < len(typed) && !leaves; at += size {
				var part []byte
				part, leaves = e.take([]byte(typed[at:min(at+size, len(typed))]))
				out += string(part)
			}
			if out != want.out || leaves != want.leaves {
				t.Errorf("%q in pieces of %d: %q, leaves %v", typed, size, out, leaves)
			}
		}
	}
}
