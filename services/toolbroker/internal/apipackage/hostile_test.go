package apipackage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
)

const body = `
  /x:
    post:
      operationId: op
      requestBody: {required: true, content: {application/json: {schema: {$ref: '%s'}}}}
`

func withSchemas(ref, schemas string) fstest.MapFS {
	d := document(fmt.Sprintf(body, ref))
	d["openapi.yaml"].Data = append(d["openapi.yaml"].Data, []byte("components:\n  schemas:\n"+schemas)...)
	return d
}

// Cycles stay references, however they are built, and arguments are checked against them (fastmcp#1206).
func testCyclicReferences(t *testing.T) {
	for name, c := range map[string]struct {
		schemas, good string
		warns         bool
	}{
		"a tree":           {"    A: {type: object, properties: {name: {type: string}, kids: {type: array, items: {$ref: '#/components/schemas/A'}}}}", `{"name":"x","kids":[{"kids":[{"name":"y"}]}]}`, false},
		"two by turns":     {"    A: {type: object, properties: {b: {$ref: '#/components/schemas/B'}}}\n    B: {type: object, properties: {a: {$ref: '#/components/schemas/A'}}}", `{"b":{"a":{"b":{}}}}`, false},
		"itself":           {"    A: {$ref: '#/components/schemas/A'}", `{"body":1}`, true},
		"each other":       {"    A: {$ref: '#/components/schemas/B'}\n    B: {$ref: '#/components/schemas/A'}", `{"body":1}`, true},
		"all of itself":    {"    A: {type: object, properties: {x: {type: string}}, allOf: [{$ref: '#/components/schemas/A'}]}", ``, false},
		"any of itself":    {"    A: {anyOf: [{type: string}, {$ref: '#/components/schemas/A'}]}", `{"body":"x"}`, false},
		"a part of itself": {"    A: {type: object, properties: {x: {$ref: '#/components/schemas/A/properties/x'}}}", `{"x":1}`, true},
		"nothing there":    {"    A: {type: object, properties: {x: {$ref: '#/components/schemas/Gone'}}}", `{"x":1}`, true},
		"an anchor":        {"    A: {type: object, properties: {x: {$ref: '#here'}}}", `{"x":1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			p, warnings := provider(t, s, withSchemas("#/components/schemas/A", c.schemas), nil)
			if (len(warnings) > 0) != c.warns {
				t.Errorf("warnings: %v", warnings)
			}
			if c.good != "" {
				mustCall(t, p, "op", c.good)
			} else if _, err := call(t, p, "op", `{"x":"1"}`); err != nil && problem.CodeOf(err) != problem.Invalid {
				t.Error(err)
			}
		})
	}
}

// References that are shared many times over stay shared: a document that would be 2^60 schemas when written out.
func testReferencesAreNotWrittenOut(t *testing.T) {
	var schemas strings.Builder
	for i := range 60 {
		fmt.Fprintf(&schemas, "    S%d: {type: object, properties: {a: {$ref: '#/components/schemas/S%d'}, b: {$ref: '#/components/schemas/S%d'}}}\n", i, i+1, i+1)
	}
	schemas.WriteString("    S60: {type: string}\n")
	s := newStub(t)
	p, _ := provider(t, s, withSchemas("#/components/schemas/S0", schemas.String()), nil)
	mustCall(t, p, "op", `{"a":{"b":{"a":{}}}}`)
}

// A chain of references takes time and stack in proportion to its length.
func TestLongChains(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(8 << 20))
	for name, link := range map[string]string{"of schemas": "{type: object, properties: {n: {$ref: '#/components/schemas/S%d'}}}", "of references": "{$ref: '#/components/schemas/S%d'}"} {
		t.Run(name, func(t *testing.T) {
			var schemas strings.Builder
			const length = 10_000
			for i := range length {
				fmt.Fprintf(&schemas, "    S%d: "+link+"\n", i, i+1)
			}
			fmt.Fprintf(&schemas, "    S%d: {type: string}\n", length)
			p, _ := importAll(t, withSchemas("#/components/schemas/S0", schemas.String()), nil)
			if _, err := p.Tools(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Nothing outside of the document's folder is read, and nothing is fetched.
func TestReferencesStayInside(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "secret.yaml")
	inside := filepath.Join(dir, "api")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside, []byte("type: string\ndescription: "+canary), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	s := newStub(t) // which would answer
	for _, ref := range []string{"/etc/passwd", "file:///etc/passwd", "../secret.yaml", "link.yaml", outside, s.URL + "/schema.json", "//" + strings.TrimPrefix(s.URL, "http://") + "/x.json",
		"sub/../../secret.yaml", "..%2fsecret.yaml", `..\secret.yaml`, ".", "gone.yaml", "sub/"} {
		t.Run(ref, func(t *testing.T) {
			text := document(fmt.Sprintf(body, ref))["openapi.yaml"].Data
			if err := os.WriteFile(filepath.Join(inside, "openapi.yaml"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(inside)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = root.Close() }()
			p, warnings, err := apipackage.Import(t.Context(), apipackage.Source{Files: root.FS(), Document: "openapi.yaml", Manifest: manifestOf("t", "https://api.example.com")})
			if err != nil {
				t.Fatal(err)
			}
			raw, err := p.Marshal()
			if err != nil || len(warnings) == 0 || strings.Contains(string(raw), canary) || strings.Contains(fmt.Sprint(warnings), canary) || strings.Contains(string(raw), "root:") {
				t.Errorf("%v %v %s", err, warnings, raw)
			}
		})
	}
	if len(s.got) > 0 {
		t.Errorf("the document was fetched from: %v", s.got)
	}
}

func TestBundles(t *testing.T) {
	files := document(`
  /x: {$ref: 'paths/x.yaml#/x'}
`)
	files["paths/x.yaml"] = &fstest.MapFile{Data: []byte(`
x:
  parameters: [{$ref: '../shared.json#/parameters/Limit'}]
  post:
    operationId: op
    requestBody: {content: {application/json: {schema: {$ref: '../shared.json#/Thing'}}}}
`)}
	files["shared.json"] = &fstest.MapFile{Data: []byte(`{"parameters":{"Limit":{"name":"limit","in":"query","schema":{"type":"integer"}}},
		"Thing":{"type":"object","properties":{"name":{"$ref":"#/Name"},"parent":{"$ref":"#/Thing"}}},"Name":{"type":"string","maxLength":3}}`)}
	s := newStub(t)
	p, warnings := provider(t, s, files, nil)
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	mustCall(t, p, "op", `{"limit":"3","name":"abc","parent":{"name":"x"}}`)
	if got := s.last(t); got.line != "POST /base/x?limit=3" || got.body != `{"name":"abc","parent":{"name":"x"}}` {
		t.Error(got)
	}
	_, err := call(t, p, "op", `{"name":"abcd"}`)
	wantError(t, err, "argument name: ")
}

// What would need more memory or time than a document is worth is refused before it takes it.
func TestLimits(t *testing.T) {
	laughs := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i, i)
	}
	for name, c := range map[string]struct{ text, words string }{
		"aliases that multiply": {laughs, ""},
		"an alias of itself":    {"a: &a [*a]\n", ""},
		"merges of themselves":  {"a: &a {<<: *a, x: 1}\n", ""},
		"merges that multiply":  {mergeBomb(), ""},
		"deep JSON arrays":      {strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), "nests deeper"},
		"deep JSON objects":     {strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000), "nests deeper"},
		"deep YAML":             {"a: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), ""},
		"JSON without an end":   {strings.Repeat(`{"a":`, 10_000), "nests deeper"},
		"very many values":      {"[" + strings.Repeat("1,", 2_100_000) + "1]", "values"},
		"a large file":          {`{"x":"` + strings.Repeat("a", 33<<20) + `"}`, "larger than 32 MiB"},
		"a large YAML file":     {"x: " + strings.Repeat("a", 9<<20), "8 MiB"},
		"nothing":               {"", ""},
		"no document":           {"hello: there", "neither OpenAPI 3 nor Swagger 2"},
		"OpenAPI 1":             {"swagger: '1.2'", "neither OpenAPI 3 nor Swagger 2"},
		"no paths":              {"openapi: 3.1.0", "no paths"},
		"paths of another type": {"openapi: 3.1.0\npaths: [1, 2]", ""},
		"an infinite number":    {"openapi: 3.1.0\npaths: .inf", "not one in JSON"},
		"binary":                {"\x00\x01\x02\xff", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			peak, _, took := measured(func() {
				_, _, err = apipackage.Import(t.Context(), apipackage.Source{Files: fstest.MapFS{"d": {Data: []byte(c.text)}}, Document: "d", Manifest: manifestOf("t", "https://api.example.com")})
			})
			wantError(t, err, c.words)
			t.Logf("%v, %d MiB, %v", took.Round(1e6), peak>>20, err)
			if peak > 400<<20 {
				t.Errorf("it took %d MiB", peak>>20)
			}
		})
	}
}

func mergeBomb() string {
	b := "a0: &a0 {x: 1}\n"
	for i := range 30 {
		b += fmt.Sprintf("a%d: &a%d {<<: [*a%d, *a%d, *a%d]}\n", i+1, i+1, i, i, i)
	}
	return b
}

func TestImportStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := apipackage.Import(ctx, apipackage.Source{Files: document("  /x: {get: {operationId: a}}\n"), Document: "openapi.yaml", Manifest: manifestOf("t", "https://api.example.com")})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A large inline body that very many operations share is not copied for each of them without end.
func TestSharedInlineBodies(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "  /x%d: {post: {operationId: op%d, requestBody: {$ref: '#/components/requestBodies/B'}}}\n", i, i)
	}
	b.WriteString("components:\n  requestBodies:\n    B:\n      content:\n        application/json:\n          schema:\n            type: object\n            properties:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "              p%d: {type: string}\n", i)
	}
	_, _, err := apipackage.Import(t.Context(), apipackage.Source{Files: document(b.String()), Document: "openapi.yaml", Manifest: manifestOf("t", "https://api.example.com")})
	wantError(t, err, "choose fewer")
}

func FuzzImport(f *testing.F) {
	f.Add(string(document(fmt.Sprintf(body, "#/components/schemas/A"))["openapi.yaml"].Data))
	f.Add(`{"openapi":"3.1.0","paths":{"/a/{b}":{"get":{"parameters":[{"name":"b","in":"path","schema":true}]}}}}`)
	f.Add(`{"swagger":"2.0","info":{"title":"t","version":"1"},"paths":{"/a":{"post":{"parameters":[{"name":"f","in":"formData","type":"file"}]}}},"definitions":{"A":{"$ref":"#/definitions/A"}}}`)
	f.Add("openapi: 3.0.0\npaths: &p\n  /x: {get: {operationId: x}}\n  <<: *p\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, _, err := apipackage.Import(t.Context(), apipackage.Source{Files: fstest.MapFS{"d": {Data: []byte(text)}}, Document: "d", Manifest: manifestOf("t", "https://api.example.com")})
		if err != nil {
			return
		}
		again := kept(t, p)
		tools, err := again.Tools()
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			if !shownName.MatchString(tool.Name) {
				t.Errorf("tool %q", tool.Name)
			}
		}
		if changes := apipackage.Diff(p, again); len(changes) > 0 {
			t.Errorf("a package differs from itself: %v", changes)
		}
	})
}
