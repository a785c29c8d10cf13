package command

import (
	"bytes"
	"testing"
)

// A script wrote the artifact: a terminal obeys none of it, and a file has all of it.
func TestWriteArtifact(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		terminal    bool
		value, kind string
		want        string
		refused     bool
	}{
		"text to a file":      {false, "a\x1b[2Jb\n", "text/plain; charset=utf-8", "a\x1b[2Jb\n", false},
		"text at a terminal":  {true, "a\x1b[2Jb\n", "text/plain; charset=utf-8", "a\\u{1B}[2Jb\n", false},
		"bytes to a file":     {false, "\x00\xff", "application/octet-stream", "\x00\xff", false},
		"bytes at a terminal": {true, "\x00\xff", "application/octet-stream", "", true},
	} {
		var out bytes.Buffer
		err := writeArtifact(&out, c.terminal, []byte(c.value), c.kind)
		if out.String() != c.want || (err != nil) != c.refused {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
}
