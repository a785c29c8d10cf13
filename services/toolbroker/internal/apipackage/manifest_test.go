package apipackage_test

import (
	"testing"

	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
)

func TestParseManifest(t *testing.T) {
	m, err := apipackage.ParseManifest([]byte(`
name: things
version: "3"
base_url: https://api.example.com/v1
auth: {kind: header, name: X-Api-Key}
idempotency_header: Idempotency-Key
include: [{operation: "get*"}, {tag: "admin-?"}, {operation: "POST /search"}]
exclude: [{operation: getSecret}]
operations:
  "POST /search": {rename: search, effect: pure}
  create: {effect: keyed, writes: true, description: Make one}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := newStub(t)
	p, warnings := importAll(t, document(`
  /a: {get: {operationId: getA}, post: {operationId: create, tags: [admin-1], description: x}, put: {operationId: replace}}
  /secret: {get: {operationId: getSecret}}
  /search: {post: {}}
  /h: {head: {operationId: getHead}, options: {operationId: getOptions}}
servers: [{url: "`+s.URL+`"}]
`), func(src *apipackage.Source) { src.Manifest = m })
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	type class struct {
		effect connection.Effect
		writes bool
	}
	want := map[string]class{"getA": {connection.Pure, false}, "create": {connection.Keyed, true}, "search": {connection.Pure, false}, "getHead": {connection.Pure, false}}
	for _, o := range p.Operations {
		if want[o.Tool] != (class{o.Effect, o.Writes}) {
			t.Errorf("%s is %s, writes %t", o.Tool, o.Effect, o.Writes)
		}
		delete(want, o.Tool)
	}
	if len(want) > 0 || p.BaseURL != "https://api.example.com/v1" {
		t.Errorf("missing %v; base URL %s", want, p.BaseURL)
	}
	jsonToo, err := apipackage.ParseManifest([]byte(`{"name":"a","version":"1","base_url":"https://a.example","auth":{"kind":"none"},"include":[{"operation":"*"}]}`))
	if err != nil || jsonToo.Name != "a" {
		t.Error(jsonToo, err)
	}
}

func TestManifestRefuses(t *testing.T) {
	const good = "name: a\nversion: '1'\nbase_url: https://a.example\nauth: {kind: none}\ninclude: [{operation: '*'}]\n"
	for text, words := range map[string]string{
		good + "surprise: 1\n":                "surprise",
		good + "auth: {kind: magic}\n":        "",
		"name: A b\n":                         "name",
		"name: a\n":                           "version",
		"name: a\nversion: '1'\n":             "includes no operation",
		good + "idempotency_header: Cookie\n": "not a header",
		good + "operations: {a: {effect: pure, writes: true}}\n":                                                        "not pure",
		good + "operations: {a: {effect: sometimes}}\n":                                                                 "none of pure",
		good + "operations: {a: {effect: probeable}}\n":                                                                 "needs a probe",
		good + "operations: {a: {rename: 'a b'}}\n":                                                                     "rename",
		good + "exclude: [{}]\n":                                                                                        "has to name",
		"name: a\nversion: '1'\nbase_url: 'https://u:p@a.example'\nauth: {kind: none}\ninclude: [{tag: x}]\n":           "base_url",
		"name: a\nversion: '1'\nbase_url: 'file:///x'\nauth: {kind: none}\ninclude: [{tag: x}]\n":                       "base_url",
		"name: a\nversion: '1'\nbase_url: 'https://a.example/../x'\nauth: {kind: none}\ninclude: [{tag: x}]\n":          "base_url",
		"name: a\nversion: '1'\nbase_url: 'https://a.example'\nauth: {kind: header, name: Host}\ninclude: [{tag: x}]\n": "auth name",
		"name: a\nversion: '1'\nbase_url: 'https://a.example'\ninclude: [{tag: x}]\n":                                   "auth kind",
	} {
		_, err := apipackage.ParseManifest([]byte(text))
		wantError(t, err, words)
	}
}
