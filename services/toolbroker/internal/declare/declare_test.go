package declare_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/evanw/esbuild/pkg/api"
	"pgregory.net/rapid"

	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/declare"
)

var update = flag.Bool("update", false, "write the golden files")

// valid says that a text is TypeScript, and only declares: no code is left of it when its types are taken away. A text
// that left its comment or its quotes would be code.
func valid(t interface {
	Helper()
	Errorf(string, ...any)
}, text string) {
	t.Helper()
	out := api.Transform(text, api.TransformOptions{Loader: api.LoaderTS, Target: api.ES2017})
	if len(out.Errors) > 0 {
		e := out.Errors[0]
		t.Errorf("no TypeScript: %s at %+v\n%.3000s", e.Text, e.Location, text)
	} else if code := strings.TrimSpace(string(out.Code)); code != "" {
		t.Errorf("it is code: %.300s\n%.3000s", code, text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("a hidden character in %q", text[max(0, i-40):min(len(text), i+40)])
	}
}

// section is one part of a txtar file.
type section struct{ name, text string }

func sections(raw string) (out []section) {
	for _, part := range strings.Split("\n"+raw, "\n-- ")[1:] {
		name, text, _ := strings.Cut(part, " --\n")
		out = append(out, section{name, strings.TrimSuffix(text, "\n") + "\n"})
	}
	return out
}

// Each file of testdata holds tools, by full name with description and schema, and how they are declared together.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var tools []*declare.Tool
			want, kept, most := "", "", 24<<10
			for _, s := range sections(string(raw)) {
				if s.name == "declared" {
					want = s.text
					continue
				}
				kept += "-- " + s.name + " --\n" + s.text
				if s.name == "most" {
					fmt.Sscan(s.text, &most)
					continue
				}
				doc, schema, ok := strings.Cut(s.text, "\n{")
				if !ok {
					doc, schema = "", s.text[1:]
				}
				of, name, _ := strings.Cut(s.name, ".")
				if !json.Valid([]byte("{" + schema)) {
					t.Fatalf("%s has no schema", s.name)
				}
				tools = append(tools, declare.New(of, connection.Tool{Name: name, Description: doc, Schema: json.RawMessage("{" + schema)}))
			}
			got := declare.Write(tools, most).Text
			valid(t, got)
			if *update {
				if err := os.WriteFile(file, []byte(kept+"-- declared --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func one(description, schema string) string {
	return declare.Write([]*declare.Tool{declare.New("con", connection.Tool{Name: "tool", Description: description, Schema: json.RawMessage(schema)})}, 24<<10).Text
}

// What is somebody else's text stays a text.
func TestHostile(t *testing.T) {
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 3000) + `{}` + strings.Repeat(`}}`, 3000)
	var chain, doubling strings.Builder
	for i := range 60 {
		fmt.Fprintf(&chain, `"d%d":{"type":"object","properties":{"x":{"$ref":"#/$defs/d%d"},"y":{"type":"string"}}},`, i, i+1)
		fmt.Fprintf(&doubling, `"d%d":{"type":"object","properties":{"x":{"$ref":"#/$defs/d%d"},"y":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	wide := `{"type":"object","properties":{`
	for i := range 3000 {
		wide += fmt.Sprintf(`"property%d":{"type":"string","enum":["%s"]},`, i, strings.Repeat("x", 20))
	}
	wide += `"z":{}}}`
	for name, c := range map[string]struct{ description, schema, want string }{
		"a comment's end":             {"do */ process.exit() /*", `{"type":"object","properties":{}}`, "/** do * / process.exit() /* */\n  tool()"},
		"an end made by hiding":       {"do *\u202e/ evil() *\u200b/ more", `{"type":"object","properties":{}}`, "/** do * / evil() * / more */"},
		"line ends":                   {"a\r\nb\u2028c\u2029d\u0085e", `{"type":"object","properties":{}}`, "/** a b c d e */"},
		"only the first part":         {"one\ntwo\n\nthree", `{"type":"object","properties":{}}`, "/** one two */"},
		"a description of 1 MB":       {strings.Repeat("*/", 1<<19), `{"type":"object","properties":{}}`, "…"},
		"invalid UTF-8":               {"a\xff\xc0b", `{"type":"object","properties":{}}`, "/** ab */"},
		"hidden in a name":            {"", `{"type":"object","properties":{"a\u202e\"b\n":{"type":"string"}}}`, `"a\u{202E}\"b\n"?: string`},
		"hidden in a literal":         {"", `{"type":"object","properties":{"a":{"const":"x\u2028\"*/y"}}}`, `a?: "x\u2028\"*/y"`},
		"an argument's comment":       {"", `{"type":"object","properties":{"a":{"type":"string","description":"*/}): x; evil(); /*","format":"*/","default":"*/"}}}`, "* /}): x"},
		"a name of 1 KB":              {"", `{"type":"object","properties":{"` + strings.Repeat("n", 1<<10) + `":{}}}`, "[key: string]: unknown"},
		"very deep":                   {"", deep, "Record<string, unknown>"},
		"deeper than JSON is read":    {"", strings.Repeat("[", 20000) + strings.Repeat("]", 20000), "tool(args?: Record<string, unknown>)"},
		"a long chain":                {"", `{"$defs":{` + chain.String() + `"d60":{}},"$ref":"#/$defs/d0"}`, "tool(args: "},
		"a doubling chain":            {"", `{"$defs":{` + doubling.String() + `"d60":{}},"$ref":"#/$defs/d0"}`, "tool(args: "},
		"3,000 arguments":             {"", wide, "[key: string]: unknown"},
		"a reference to itself":       {"", `{"$defs":{"a":{"$ref":"#/$defs/a"}},"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}`, "tool(args?: {a?: A})"},
		"the same, spelled otherwise": {"", `{"$defs":{"a":{"type":"object","properties":{"b":{"$ref":"#/$defs/%61"}}}},"type":"object","properties":{"a":{"$ref":"#/$defs/a"}}}`, "tool("},
		"parts of parts":              {"", `{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"$ref":"#/properties/a"},"c":{"$ref":"#"}}}}}`, "tool("},
		"a reference elsewhere":       {"", `{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"},"b":{"$ref":"#anchor"},"c":{"$ref":"#/nosuch"},"d":{"$ref":7},"e":{"$ref":"#/%zz"}}}`, "{a?: unknown; b?: unknown; c?: unknown; d?: unknown; e?: unknown}"},
		"no JSON":                     {"", `{"type":`, "tool(args?: Record<string, unknown>)"},
		"no schema":                   {"", ``, "tool(args?: Record<string, unknown>)"},
		"too large a schema":          {"", `{"type":"object","description":"` + strings.Repeat("x", 1<<20) + `"}`, "tool(args?: Record<string, unknown>)"},
		"words of other types":        {"", `{"type":{"a":1},"properties":[1],"required":"x","enum":{"a":1},"oneOf":7,"allOf":[3,null,true]}`, "tool("},
		"a name twice":                {"", `{"type":"object","properties":{"a":{"type":"string"},"a":{"type":"number"}}}`, "tool(args?: {a?: number})"},
		"words in another case":       {"", `{"Type":"object","type":"object","Required":["a"],"properties":{"a":{"Type":"string"}}}`, "tool(args?: {a?: unknown})"},
	} {
		got := one(c.description, c.schema)
		valid(t, got)
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %.600s", name, got)
		}
		if len(got) > 13<<10 {
			t.Errorf("%s takes %d bytes", name, len(got))
		}
	}
}

// Whatever is declared is TypeScript, within the budget, and the same in any order.
func TestAnything(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"*/", "`", "\"", "'", "\\", "*\u200b/", "\u2028", "//", "/*", "new", "__proto__", "a-b", "${x}", "}", "\n", "constructor", "type", "0", "#"}))
	var schema func(depth int) *rapid.Generator[any]
	schema = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
				return rapid.SampledFrom([]any{true, false, nil, 1, "x", []any{}}).Draw(t, "no schema")
			}
			out := map[string]any{}
			for _, word := range rapid.SliceOfN(rapid.SampledFrom([]string{"type", "properties", "required", "items", "prefixItems", "additionalProperties", "enum", "const", "oneOf", "anyOf", "allOf",
				"$ref", "$defs", "nullable", "description", "format", "default", "minimum", "maximum", "patternProperties"}), 0, 5).Draw(t, "words") {
				sub := func() any {
					if depth == 0 {
						return map[string]any{}
					}
					return schema(depth-1).Draw(t, "sub")
				}
				subs := func() (all []any) {
					for range rapid.IntRange(0, 3).Draw(t, "n") {
						all = append(all, sub())
					}
					return all
				}
				switch word {
				case "type":
					out[word] = rapid.OneOf(rapid.Map(rapid.SampledFrom([]string{"object", "array", "string", "integer", "null", "nosuch"}), func(s string) any { return s }),
						rapid.Just[any]([]any{"object", "null"}), rapid.Just[any]([]any{"string", "array"})).Draw(t, word)
				case "properties", "$defs", "patternProperties":
					all := map[string]any{}
					for _, name := range rapid.SliceOfN(rapid.OneOf(text, rapid.SampledFrom([]string{"a", "b"})), 0, 3).Draw(t, "names") {
						all[name] = sub()
					}
					out[word] = all
				case "required":
					out[word] = rapid.SliceOfN(text, 0, 2).Draw(t, word)
				case "prefixItems", "oneOf", "anyOf", "allOf":
					out[word] = subs()
				case "items", "additionalProperties":
					out[word] = sub()
				case "enum":
					out[word] = rapid.SliceOfN(rapid.OneOf(rapid.Map(text, func(s string) any { return s }), rapid.SampledFrom([]any{1, -2.5e300, nil, true, map[string]any{}})), 0, 4).Draw(t, word)
				case "$ref":
					out[word] = rapid.SampledFrom([]string{"#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/$defs/a/properties/b", "x", "#/$defs/%61"}).Draw(t, word)
				case "nullable":
					out[word] = true
				case "minimum", "maximum":
					out[word] = rapid.Float64Range(-1e9, 1e9).Draw(t, word)
				default:
					out[word] = text.Draw(t, word)
				}
			}
			return out
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		var tools []*declare.Tool
		for n := range rapid.IntRange(0, 6).Draw(t, "tools") {
			raw, err := json.Marshal(schema(3).Draw(t, "schema"))
			if err != nil {
				t.Fatal(err)
			}
			tools = append(tools, declare.New(rapid.SampledFrom([]string{"github", "my-api", "0", "new"}).Draw(t, "connection"), connection.Tool{
				Name: fmt.Sprint(rapid.OneOf(text, rapid.Just("list")).Draw(t, "name"), n), Description: text.Draw(t, "description"), Schema: raw}))
		}
		most := rapid.IntRange(300, 4000).Draw(t, "most")
		got := declare.Write(tools, most)
		valid(t, got.Text)
		if len(got.Text) > most {
			t.Errorf("%d bytes, over %d:\n%s", len(got.Text), most, got.Text)
		}
		slices.Reverse(tools)
		if again := declare.Write(tools, most); again != got {
			t.Errorf("%s\nis in another order\n%s", got.Text, again.Text)
		}
		valid(t, declare.Write(tools, 1<<20).Text)
	})
}

func FuzzSchema(f *testing.F) {
	f.Add("tool", "about", `{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"]}`)
	f.Add("new", "*/", `{"$ref":"#","enum":["*/",1]}`)
	f.Add("a.b", "\u202e", `{"$defs":{"a":{"items":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}`)
	f.Fuzz(func(t *testing.T, name, description, schema string) {
		got := declare.Write([]*declare.Tool{declare.New("con", connection.Tool{Name: name, Description: description, Schema: json.RawMessage(schema)})}, 24<<10)
		valid(t, got.Text)
		if len(got.Text) > 24<<10 {
			t.Errorf("%d bytes", len(got.Text))
		}
	})
}

// The names that a script cannot call are those that the runtime's tools.js says nothing for.
func TestCallable(t *testing.T) {
	raw, err := os.ReadFile("../../../runtime/internal/engine/js/tools.js")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(raw), "const silent = ")
	line, _, _ = strings.Cut(line, "\n")
	names := 0
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 && part != "string" {
			names++
			if declare.Callable("con."+part) || declare.Callable(part+".tool") {
				t.Errorf("%s is callable", part)
			}
		}
	}
	if names != 4 || !declare.Callable("my-api.list-pets") || declare.Callable("tools") {
		t.Errorf("%d names in %s", names, line)
	}
}

func BenchmarkWrite(b *testing.B) {
	var tools []*declare.Tool
	for n := range 1000 {
		tools = append(tools, declare.New("con", connection.Tool{Name: fmt.Sprint("tool", n), Description: "A tool", Schema: json.RawMessage(`{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"}},"required":["owner"]}`)}))
	}
	for b.Loop() {
		declare.Write(tools, 24<<10)
	}
}

// What a script has beside its tools is declared too, also when it has no tools; a connection of the name of a way to look
// for tools is declared in its place.
func TestWriteScript(t *testing.T) {
	tool := func(c string) *declare.Tool {
		return declare.New(c, connection.Tool{Name: "find", Description: "Finds.", Schema: json.RawMessage(`{"type":"object"}`)})
	}
	for name, tc := range map[string]struct {
		tools    []*declare.Tool
		has, not []string
	}{
		"no tools":  {nil, []string{" search(words: string", " describe(name: string", "declare const artifacts: {", "interface Response"}, nil},
		"tools":     {[]*declare.Tool{tool("github")}, []string{" search(words: string", " describe(name: string", "declare const artifacts: {", "github: {"}, nil},
		"of search": {[]*declare.Tool{tool("search")}, []string{" describe(name: string", "search: {"}, []string{"search(words"}},
	} {
		w := declare.WriteScript(tc.tools, 4<<10)
		valid(t, w.Text)
		for _, s := range tc.has {
			if !strings.Contains(w.Text, s) {
				t.Errorf("%s: no %q in\n%s", name, s, w.Text)
			}
		}
		for _, s := range tc.not {
			if strings.Contains(w.Text, s) {
				t.Errorf("%s: %q in\n%s", name, s, w.Text)
			}
		}
		if w.Tools != len(tc.tools) || len(w.Text) > 4<<10 {
			t.Errorf("%s: %d tools, %d bytes", name, w.Tools, len(w.Text))
		}
	}
	var many []*declare.Tool
	for i := range 400 {
		many = append(many, tool(fmt.Sprint("c", i)))
	}
	if w := declare.WriteScript(many, 4<<10); len(w.Text) > 4<<10 || w.Left == 0 {
		t.Errorf("%d bytes, %d left out", len(w.Text), w.Left)
	}
}
