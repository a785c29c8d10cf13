package render

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/execwarden/execwarden/libs/unseen"
	"github.com/execwarden/execwarden/schemas"
)

// TestEveryKindHasWords fails for a kind that was added to the catalogue and has no line here.
func TestEveryKindHasWords(t *testing.T) {
	t.Parallel()
	for _, entry := range schemas.All() {
		data, err := json.Marshal(reflect.New(entry.Type).Interface())
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := words(schemas.Envelope{Type: schemas.TypeOf(entry), Data: data}); text == "" {
			t.Errorf("%s has no words", entry.Kind)
		}
	}
	if text, _ := words(schemas.Envelope{Type: "ew.moon.risen.v1", Data: []byte(`{"a":1}`)}); !strings.Contains(text, `{"a":1}`) {
		t.Errorf("an unknown kind is shown as %q", text)
	}
	if text, tone := words(schemas.Envelope{Type: "ew.run.created.v1", Data: []byte(`7`)}); tone != Bad || text == "" {
		t.Errorf("an event that cannot be read is shown as %q", text)
	}
}

const nasty = "a\x1b[31m\u009b\u202e\u2028\U000E0041\uFE01\U000E0101\u3164\x7f\r\n\t\"\\ é ☃ \U0001F600: - # true"

// TestNothingHiddenGetsOut writes hostile text in each format. What programs read means the same text.
func TestNothingHiddenGetsOut(t *testing.T) {
	t.Parallel()
	want := map[string]any{"text": nasty, nasty: []any{nasty, nil, true, 1.5, map[string]any{}, []any{}, map[string]any{"x": []any{[]any{"y"}}}}}
	for _, format := range Formats() {
		if format.ForPeople() {
			continue
		}
		var out bytes.Buffer
		if err := (&Printer{Out: &out, Format: format}).Value(want); err != nil {
			t.Fatal(err)
		}
		checkNothingHidden(t, out.String())
		var got map[string]any
		var err error
		if format == YAML {
			err = yaml.Unmarshal(out.Bytes(), &got)
		} else {
			err = json.Unmarshal(out.Bytes(), &got)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", format, err, out.String())
		}
		if diff := cmp.Diff(normal(t, want), normal(t, got)); diff != "" {
			t.Errorf("%s: %s\n%s", format, diff, out.String())
		}
	}
	for _, text := range []string{Visible(nasty), Inline(nasty), Short(nasty, 10), PrettyJSON([]byte(nasty))} {
		checkNothingHidden(t, text)
	}
}

// normal is a value with the number types of JSON.
func normal(t *testing.T, v any) (out any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func checkNothingHidden(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if unseen.Rune(r) && r != '\n' && r != '\t' {
			t.Errorf("%U got out in %q", r, text)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add(nasty, 5)
	f.Add("\xff\xfe", 1)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = 1 + max(most, 0)%1000
		for _, out := range []string{Visible(text), Inline(text), Short(text, most)} {
			checkNothingHidden(t, out)
		}
		if n := len([]rune(Short(text, most))); n > most {
			t.Errorf("%d characters, at most %d", n, most)
		}
	})
}

func FuzzYAML(f *testing.F) {
	f.Add(`{"a":[1,{"b":"~"}],"yes":"no"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var want any
		if json.Unmarshal([]byte(text), &want) != nil {
			return
		}
		out, err := toYAML([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		checkNothingHidden(t, string(out))
	})
}

// TestScalars is about texts that YAML could take for something else.
func TestScalars(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "true", "No", "null", "~", "1", "1e3", "0x10", "2026-01-01", "a: b", "- a", "a #b", "'a'", "*a", "&a", "!a", "%a", "@a", "`a`", "{", " a", "a ", "a\nb", ".inf", "y", "run_1", "a/b"} {
		var got map[string]any
		if err := yaml.Unmarshal([]byte("k: "+scalar(text)+"\n"), &got); err != nil || got["k"] != text {
			t.Errorf("%q is written as %s, which is %#v (%v)", text, scalar(text), got["k"], err)
		}
	}
}

// TestColoured asks a terminal (the master side of a pseudo-terminal is one) and what is none.
func TestColoured(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	defer terminal.Close()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tc := range []struct {
		name string
		w    io.Writer
		env  map[string]string
		want bool
	}{
		{"terminal", terminal, map[string]string{"TERM": "xterm"}, true},
		{"NO_COLOR", terminal, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
		{"TERM=dumb", terminal, map[string]string{"TERM": "dumb"}, false},
		{"file", file, map[string]string{"TERM": "xterm"}, false},
		{"buffer", &bytes.Buffer{}, map[string]string{"TERM": "xterm"}, false},
	} {
		if got := Coloured(tc.w, func(name string) string { return tc.env[name] }); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestGrid(t *testing.T) {
	t.Parallel()
	g := &Grid{Columns: []Column{{Name: "NAME"}, {Name: "MORE", Wide: true}, {Name: "STATE"}}}
	g.Row(Text("é"), Text(strings.Repeat("m", 70)), Cell{"active", Good})
	g.Row(Text("long-name"), Text(""), Cell{"revoked\x1b", Bad})
	for _, tc := range []struct {
		format Format
		colour bool
		want   string
	}{
		{Table, false, "NAME       STATE\né          active\nlong-name  revoked\\u{1B}\n"},
		{Wide, false, "NAME       MORE" + strings.Repeat(" ", 68) + "STATE\né          " + strings.Repeat("m", 70) + "  active\nlong-name  -" + strings.Repeat(" ", 71) + "revoked\\u{1B}\n"},
		{Table, true, "\x1b[2mNAME\x1b[0m       \x1b[2mSTATE\x1b[0m\né          \x1b[32mactive\x1b[0m\nlong-name  \x1b[31mrevoked\\u{1B}\x1b[0m\n"},
	} {
		var out bytes.Buffer
		if err := (&Printer{Out: &out, Format: tc.format, Colour: tc.colour}).grid(g); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, out.String()); diff != "" {
			t.Errorf("%s: %s", tc.format, diff)
		}
	}
}
