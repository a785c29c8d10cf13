package console

import (
	"encoding/json"
	"testing"

	"github.com/execwarden/execwarden/libs/unseen"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":            "plain\ttext\n",
		"a\u202Eb":                 `a\u{202E}b`,
		"a\uFE01\U000E0101\u3164b": `a\u{FE01}\u{E0101}\u{3164}b`,
		"a\u200Bb\u2066":           `a\u{200B}b\u{2066}`,
		"\x1b[31m\r":               `\u{1B}[31m\u{D}`,
		"bad\xff":                  "bad\uFFFD",
		"日本 é":                     "日本 é",
	} {
		if got := visible(in); got != want {
			t.Errorf("%q: %q, not %q", in, got, want)
		}
	}
}

func TestLegibleChangesNoMeaning(t *testing.T) {
	for _, in := range []string{"<a & b>", `\u003c`, `\\u003c`, `"`, "\u003c\\", `\`} {
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out string
		if err := json.Unmarshal([]byte(unseen.Legible(raw)), &out); err != nil || out != in {
			t.Errorf("%q became %q through %s: %v", in, out, unseen.Legible(raw), err)
		}
	}
	for _, broken := range []string{`\`, `"\u00`, `\u003`} {
		if got := unseen.Legible([]byte(broken)); got != broken {
			t.Errorf("%q became %q", broken, got)
		}
	}
}
