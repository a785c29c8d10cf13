package render

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/execwarden/execwarden/libs/unseen"
)

func indent(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return escapeHidden(b.Bytes()), nil
}

func compact(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return escapeHidden(b.Bytes()), nil
}

// PrettyJSON is a JSON text as people read it. What is no JSON is shown as the text that it is.
func PrettyJSON(raw []byte) string {
	out, err := indent(raw)
	if err != nil {
		return Visible(string(raw))
	}
	return string(bytes.TrimSuffix(out, []byte("\n")))
}

// escapeHidden escapes hidden characters in a JSON text. They stand only within strings, where an escape means the
// same; what stands between is white space that we wrote ourselves. JSON allows DEL, the second set of control
// characters and all of Unicode's format characters as they are, and terminals act on them.
func escapeHidden(raw []byte) []byte {
	hide := func(r rune) bool { return r != '\n' && unseen.Rune(r) }
	if bytes.IndexFunc(raw, hide) < 0 && utf8.Valid(raw) {
		return raw
	}
	return []byte(unseen.EscapeJSON(string(raw), "\n"))
}
