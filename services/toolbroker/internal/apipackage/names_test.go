package apipackage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
)

func toolsOf(p *apipackage.Package) map[string]string {
	out := map[string]string{}
	for i := range p.Operations {
		out[p.Operations[i].Route()] = p.Operations[i].Tool
	}
	return out
}

// A name fits with its connection's in front, is its operation's own, and does not depend on the document's order
// (openapi-mcp-generator#4).
func testToolNames(t *testing.T) {
	long := strings.Repeat("veryLongOperationName", 5)
	ops := []string{
		"  /a: {get: {operationId: get thing}}\n", "  /b: {get: {operationId: get/thing}}\n", "  /c: {get: {operationId: get_thing}}\n",
		"  /d: {get: {operationId: " + long + "1}}\n", "  /e: {get: {operationId: " + long + "2}}\n",
		"  /f/{x}/g: {get: {}, post: {}}\n", "  /h: {get: {operationId: 'ünïcödé'}}\n", "  /i: {get: {operationId: '///'}}\n",
		"  /j: {get: {operationId: search_operations}}\n", "  /k: {get: {operationId: same}}\n", "  /l: {get: {operationId: same}}\n",
		"  /m: {get: {operationId: repos/get-content}}\n",
	}
	for _, prefix := range []int{1, 16, 40, 49} {
		change := func(src *apipackage.Source) { src.MaxPrefix = prefix }
		p, _ := importAll(t, document(strings.Join(ops, "")), change)
		names := toolsOf(p)
		seen := map[string]bool{}
		for route, name := range names {
			if shown := strings.Repeat("c", prefix) + "__" + name; len(shown) > 63 || seen[name] || strings.ContainsFunc(name, func(r rune) bool {
				return r > 127 || !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", r)
			}) {
				t.Errorf("%s is %q", route, name)
			}
			seen[name] = true
		}
		if len(names) != 13 {
			t.Errorf("%d tools", len(names))
		}
		slices.Reverse(ops)
		p, _ = importAll(t, document(strings.Join(ops, "")), change)
		if again := toolsOf(p); fmt.Sprint(again) != fmt.Sprint(names) {
			t.Errorf("another order, other names:\n%v\n%v", names, again)
		}
		if prefix == 16 && (names["GET /m"] != "repos_get-content" || names["POST /f/{x}/g"] != "POST_f_g" || names["GET /j"] == "search_operations") {
			t.Error(names)
		}
	}
	src := apipackage.Source{Files: document(ops[0]), Document: "openapi.yaml", Manifest: manifestOf("t", "https://api.example.com"), MaxPrefix: 60}
	_, _, err := apipackage.Import(t.Context(), src)
	wantError(t, err, "too few")
}

// Grants name tools: a name stays with its operation when the document changes, and is never handed on to another one.
func testNamesAcrossImports(t *testing.T) {
	first, _ := importAll(t, document("  /users/{id}: {get: {operationId: getUser}, delete: {operationId: deleteUser}}\n"), nil)
	second, _ := importAll(t, document("  /users/{userId}: {get: {operationId: fetchUser}}\n  /orgs/{id}: {delete: {operationId: deleteUser}, get: {operationId: getUser}}\n"), func(src *apipackage.Source) { src.Previous = first })
	names := toolsOf(second)
	if names["GET /users/{userId}"] != "getUser" {
		t.Errorf("the operation lost its name: %v", names)
	}
	if n := names["DELETE /orgs/{id}"]; n == "deleteUser" || n == "" {
		t.Errorf("another operation got a name that grants may be given for: %v", names)
	}
	third, _ := importAll(t, document("  /users/{id}: {get: {operationId: getUser}, delete: {operationId: removeUser}}\n"), func(src *apipackage.Source) { src.Previous = second })
	if names := toolsOf(third); names["DELETE /users/{id}"] != "deleteUser" || names["GET /users/{id}"] != "getUser" {
		t.Errorf("an operation that came back has another name: %v", names)
	}
	renamed, _ := importAll(t, document("  /users/{id}: {get: {operationId: getUser}}\n"), func(src *apipackage.Source) {
		src.Previous, src.Manifest.Operations = first, map[string]apipackage.Override{"getUser": {Rename: "user"}}
	})
	if names := toolsOf(renamed); names["GET /users/{id}"] != "user" {
		t.Error(names)
	}
	src := apipackage.Source{Files: document("  /a: {get: {operationId: a}, put: {operationId: b}}\n"), Document: "openapi.yaml", Manifest: manifestOf("t", "https://api.example.com")}
	src.Manifest.Operations = map[string]apipackage.Override{"a": {Rename: "x"}, "b": {Rename: "x"}}
	_, _, err := apipackage.Import(t.Context(), src)
	wantError(t, err, "is taken by")
}

func TestDiff(t *testing.T) {
	old, _ := importAll(t, document(`
  /a/{id}:
    get: {operationId: same, summary: Same}
    post:
      operationId: changes
      summary: Changes
      parameters: [{name: q, in: query, schema: {type: string, enum: [a]}}, {name: gone, in: query, schema: {}}, {name: moves, in: query, schema: {}}]
      requestBody: {content: {application/json: {schema: {type: object, properties: {deep: {type: object, properties: {x: {type: object, properties: {y: {type: string}}}}}}}}}}
    delete: {operationId: removed}
`), nil)
	now, _ := importAll(t, document(`
  /a/{key}:
    get: {operationId: same, summary: Same, parameters: [{name: key, in: path, required: true, schema: {type: string}}]}
    post:
      operationId: changes
      summary: Changes
      parameters: [{name: q, in: query, required: true, schema: {type: integer}}, {name: moves, in: header, schema: {}}, {name: key, in: path, required: true, schema: {type: string}}, {name: more, in: query, required: true, schema: {}}]
      requestBody: {content: {application/json: {schema: {type: object, properties: {deep: {type: object, properties: {x: {type: object, properties: {y: {type: integer}}}}}}}}}}
    put: {operationId: added}
`), func(src *apipackage.Source) {
		src.Previous = old
		src.Manifest.Auth = apipackage.Auth{Kind: apipackage.AuthNone}
		src.Manifest.Operations = map[string]apipackage.Override{"changes": {Effect: "keyed"}}
	})
	want := []string{
		"changed  : auth: bearer -> none",
		"added added PUT /a/{key}: writes, opaque",
		"changed changes POST /a/{key}: effect: writes, opaque -> writes, keyed; argument gone is gone; argument id is gone; argument deep is different inside; argument key is new, and required; argument more is new, and required; argument moves goes to: query moves (form, explode true) -> header moves (simple, explode false); argument q is now required; argument q, type: string -> integer; argument q, values: \"a\" -> none",
		"removed removed DELETE /a/{id}: ",
		"changed same GET /a/{key}: argument id is gone; argument key is new, and required",
	}
	var got []string
	for _, c := range apipackage.Diff(old, now) {
		got = append(got, fmt.Sprintf("%s %s %s: %s", c.Kind, c.Tool, c.Route, strings.Join(c.Words, "; ")))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestStoredForm(t *testing.T) {
	p, _ := importAll(t, document(things), nil)
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		strings.Replace(string(raw), "api.example.com", "evil.example.com", 1),
		strings.Replace(string(raw), `"format":1`, `"format":2`, 1),
		"", "{}", "[]",
	} {
		if _, err := apipackage.Unmarshal([]byte(bad)); err == nil {
			t.Errorf("%.100s is read", bad)
		}
	}
	same, _ := importAll(t, document(things), nil)
	other, _ := importAll(t, document(things+"  /y: {get: {operationId: y}}\n"), nil)
	manifest, _ := importAll(t, document(things), func(src *apipackage.Source) { src.Manifest.Version = "2" })
	if p.Digest != same.Digest || p.Digest == other.Digest || p.Digest == manifest.Digest {
		t.Error("the digest does not tell packages apart")
	}
}
