package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/execwarden/execwarden/libs/unseen"
)

// toYAML writes a JSON text as block-style YAML, keys in their order. It is written here because what is wanted is
// narrow and must hold for every input: no hidden character stands as it is, and no text can be taken for another
// type or start a structure.
func toYAML(raw []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var b bytes.Buffer
	y := yamlWriter{dec: dec, out: &b}
	if err := y.value("", false); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return b.Bytes(), nil
}

type yamlWriter struct {
	dec *json.Decoder
	out *bytes.Buffer
}

// value writes the next value, of which the line up to it stands already. In a sequence, a collection begins on the
// same line.
func (y yamlWriter) value(indent string, inSequence bool) error {
	token, err := y.dec.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		return y.collection(token, indent, inSequence)
	case string:
		y.out.WriteString(scalar(token))
	case nil:
		y.out.WriteString("null")
	default:
		fmt.Fprint(y.out, token)
	}
	y.out.WriteByte('\n')
	return nil
}

func (y yamlWriter) collection(open json.Delim, indent string, inSequence bool) error {
	if !y.dec.More() {
		fmt.Fprintf(y.out, "%s\n", map[json.Delim]string{'{': "{}", '[': "[]"}[open])
		_, err := y.dec.Token()
		return err
	}
	if !inSequence && y.out.Len() > 0 {
		y.out.Truncate(len(bytes.TrimRight(y.out.Bytes(), " ")))
		y.out.WriteByte('\n')
	}
	for first := true; y.dec.More(); first = false {
		if !first || !inSequence {
			y.out.WriteString(indent)
		}
		if open == '[' {
			y.out.WriteString("- ")
			if err := y.value(indent+"  ", true); err != nil {
				return err
			}
			continue
		}
		key, err := y.dec.Token()
		if err != nil {
			return err
		}
		fmt.Fprintf(y.out, "%s: ", scalar(key.(string)))
		if err := y.value(indent+"  ", false); err != nil {
			return err
		}
	}
	_, err := y.dec.Token()
	return err
}

// plain is a text that means itself in YAML. Everything else is quoted.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// reserved are texts of that form that YAML 1.1 or 1.2 reads as something else.
var reserved = map[string]bool{"true": true, "false": true, "yes": true, "no": true, "on": true, "off": true, "null": true, "y": true, "n": true}

func scalar(text string) string {
	if plain.MatchString(text) && !reserved[strings.ToLower(text)] {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unseen.Rune(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
