package apipackage_test

import (
	"fmt"
	"strings"
	"testing"
)

// The values of the OpenAPI specification's own examples of styles.
const (
	single = `"blue"`
	list   = `["blue","black","brown"]`
	record = `{"R":100,"G":200,"B":150}`
	empty  = `""`
)

// Every style, exploded and not, of every kind of value (fastmcp#5060). An explode of "" is left to the default.
func testStyles(t *testing.T) {
	for _, c := range []struct {
		in, style, explode, value string
		want                      string // after the path's or query's fixed part; of a header, its value
	}{
		{"path", "matrix", "false", single, ";color=blue"},
		{"path", "matrix", "false", empty, ";color"},
		{"path", "matrix", "false", list, ";color=blue,black,brown"},
		{"path", "matrix", "false", record, ";color=R,100,G,200,B,150"},
		{"path", "matrix", "true", single, ";color=blue"},
		{"path", "matrix", "true", list, ";color=blue;color=black;color=brown"},
		{"path", "matrix", "true", record, ";R=100;G=200;B=150"},
		{"path", "label", "false", single, ".blue"},
		{"path", "label", "false", list, ".blue,black,brown"},
		{"path", "label", "false", record, ".R,100,G,200,B,150"},
		{"path", "label", "true", single, ".blue"},
		{"path", "label", "true", list, ".blue.black.brown"},
		{"path", "label", "true", record, ".R=100.G=200.B=150"},
		{"path", "simple", "false", single, "blue"},
		{"path", "simple", "false", list, "blue,black,brown"},
		{"path", "simple", "false", record, "R,100,G,200,B,150"},
		{"path", "simple", "true", list, "blue,black,brown"},
		{"path", "simple", "true", record, "R=100,G=200,B=150"},
		{"path", "", "", record, "R,100,G,200,B,150"},
		{"query", "form", "false", single, "color=blue"},
		{"query", "form", "false", empty, "color="},
		{"query", "form", "false", list, "color=blue,black,brown"},
		{"query", "form", "false", record, "color=R,100,G,200,B,150"},
		{"query", "form", "true", single, "color=blue"},
		{"query", "form", "true", list, "color=blue&color=black&color=brown"},
		{"query", "form", "true", record, "R=100&G=200&B=150"},
		{"query", "", "", list, "color=blue&color=black&color=brown"},
		{"query", "form", "", record, "R=100&G=200&B=150"},
		{"query", "spaceDelimited", "false", list, "color=blue%20black%20brown"},
		{"query", "spaceDelimited", "false", record, "color=R%20100%20G%20200%20B%20150"},
		{"query", "spaceDelimited", "", list, "color=blue%20black%20brown"},
		{"query", "spaceDelimited", "true", list, "color=blue&color=black&color=brown"},
		{"query", "pipeDelimited", "false", list, "color=blue%7Cblack%7Cbrown"},
		{"query", "pipeDelimited", "false", record, "color=R%7C100%7CG%7C200%7CB%7C150"},
		{"query", "pipeDelimited", "", list, "color=blue%7Cblack%7Cbrown"},
		{"query", "pipeDelimited", "true", list, "color=blue&color=black&color=brown"},
		{"query", "deepObject", "true", record, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"},
		{"query", "deepObject", "", record, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"},
		{"query", "deepObject", "true", `{"a":{"b":["x","y"]}}`, "color%5Ba%5D%5Bb%5D%5B0%5D=x&color%5Ba%5D%5Bb%5D%5B1%5D=y"},
		{"query", "deepObject", "true", list, "color%5B0%5D=blue&color%5B1%5D=black&color%5B2%5D=brown"},
		{"query", "deepObject", "true", `"123"`, "color=123"},
		{"header", "simple", "false", single, "blue"},
		{"header", "simple", "false", list, "blue,black,brown"},
		{"header", "simple", "false", record, "R,100,G,200,B,150"},
		{"header", "simple", "true", list, "blue,black,brown"},
		{"header", "simple", "true", record, "R=100,G=200,B=150"},
		{"header", "", "", record, "R,100,G,200,B,150"},
		// What is inside a value never looks like what is around it.
		{"path", "simple", "false", `["a,b","c/d"]`, "a%2Cb,c%2Fd"},
		{"query", "form", "false", `["a,b","c&d=e"]`, "color=a%2Cb,c%26d%3De"},
		{"query", "form", "true", `"a b+c#d"`, "color=a%20b%2Bc%23d"},
		{"query", "pipeDelimited", "false", `["a|b","c"]`, "color=a%7Cb%7Cc"},
		{"query", "form", "true", `12345678901234567890`, "color=12345678901234567890"},
		{"query", "form", "true", `1.0e2`, "color=1.0e2"},
		{"query", "form", "true", `true`, "color=true"},
		{"query", "form", "true", `[]`, ""},
	} {
		t.Run(strings.Join([]string{c.in, c.style, c.explode, c.value}, " "), func(t *testing.T) {
			path, parameter := "/x", fmt.Sprintf("{name: color, in: %s, schema: {}", c.in)
			if c.in == "path" {
				path, parameter = "/x/{color}", parameter+", required: true"
			}
			if c.style != "" {
				parameter += ", style: " + c.style
			}
			if c.explode != "" {
				parameter += ", explode: " + c.explode
			}
			s := newStub(t)
			p, warnings := provider(t, s, document(fmt.Sprintf("  %q:\n    get:\n      operationId: op\n      parameters: [%s}]\n", path, parameter)), nil)
			if len(warnings) > 0 {
				t.Fatal(warnings)
			}
			mustCall(t, p, "op", `{"color":`+c.value+`}`)
			got := s.last(t)
			text := strings.TrimPrefix(strings.TrimPrefix(got.line, "GET /base/x"), "/")
			if c.in == "query" {
				text = strings.TrimPrefix(text, "?")
			}
			if c.in == "header" {
				text = got.header.Get("color")
			}
			if text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}

func testStylesRefuse(t *testing.T) {
	s := newStub(t)
	p, _ := provider(t, s, document(`
  /x/{p}:
    get:
      operationId: op
      parameters:
        - {name: p, in: path, required: true, schema: {}}
        - {name: q, in: query, schema: {}}
        - {name: deep, in: query, style: deepObject, schema: {}}
        - {name: h, in: header, schema: {}}
`), nil)
	for args, words := range map[string]string{
		`{"p":[["a"]]}`:                   "not nested ones",
		`{"p":"a","q":[{"a":1}]}`:         "not nested ones",
		`{"p":"a","q":{"a":{"b":1}}}`:     "not nested ones",
		`{"p":"a","q":{"deep":1}}`:        "a parameter of its own",
		`{"p":"a","deep":{"a]&b[":1}}`:    "between brackets",
		`{"p":"a","h":"x\r\nX-Admin: 1"}`: "line break",
		`{"p":"a","h":["x\ny"]}`:          "line break",
		`{"p":"a","h":{"a\r\nb":"c"}}`:    "line break",
		`{"p":""}`:                        "cannot be empty",
		`{"p":[]}`:                        "cannot be empty",
		`{"q":"x"}`:                       "argument p is missing",
		`{"p":null}`:                      "cannot be empty",
		`{"p":"a","nosuch":1}`:            `no argument "nosuch"; there are deep, h, p, q`,
		`{"p":"a","p":"b"}`:               "twice",
		`{"p":"a"} {}`:                    "not a JSON object",
		`[]`:                              "not a JSON object",
		strings.Repeat(`{"p":`, 70) + `1` + strings.Repeat("}", 70): "nest deeper",
	} {
		_, err := call(t, p, "op", args)
		wantError(t, err, words)
	}
	if len(s.got) > 0 {
		t.Errorf("the API got %d requests", len(s.got))
	}
}
