package apipackage_test

import (
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
)

func TestBodies(t *testing.T) {
	for name, c := range map[string]struct {
		content, args string
		media, want   string
	}{
		"JSON array":       {`application/json: {schema: {type: array, items: {type: integer}}}`, `{"body":[1,"2"]}`, "application/json", `[1,2]`},
		"JSON text":        {`application/json: {schema: {type: string}}`, `{"body":"a\"<é"}`, "application/json", `"a\"<é"`},
		"open object":      {`application/json: {schema: {type: object, properties: {a: {}}, additionalProperties: true}}`, `{"body":{"z":1,"a":2}}`, "application/json", `{"z":1,"a":2}`},
		"one of":           {`application/json: {schema: {oneOf: [{type: object, properties: {a: {type: string}}, required: [a]}, {type: integer}]}}`, `{"body":7}`, "application/json", `7`},
		"all of":           {`application/json: {schema: {allOf: [{type: object, properties: {a: {type: string}}}, {type: object, properties: {b: {type: string}}, required: [b]}]}}`, `{"b":"2","a":"1"}`, "application/json", `{"b":"2","a":"1"}`},
		"JSON before form": {`application/x-www-form-urlencoded: {schema: {type: object, properties: {a: {}}}}, application/vnd.x+json: {schema: {type: object, properties: {a: {}}}}`, `{"a":1}`, "application/vnd.x+json", `{"a":1}`},
		"form": {`application/x-www-form-urlencoded: {schema: {type: object, properties: {a: {type: string}, list: {type: array, items: {type: string}}, o: {type: object}, many: {type: array, items: {type: object}}}}}`,
			`{"a":"x y&z=1","list":["1","2"],"o":{"k":[1]},"many":[{"a":1},{"b":2}]}`, "application/x-www-form-urlencoded",
			`a=x+y%26z%3D1&list=1&list=2&o=%7B%22k%22%3A%5B1%5D%7D&many=%7B%22a%22%3A1%7D&many=%7B%22b%22%3A2%7D`},
		"form with styles": {`application/x-www-form-urlencoded: {schema: {type: object, properties: {a: {type: array, items: {}}, b: {type: object}, c: {type: array, items: {}}}}, encoding: {a: {style: pipeDelimited}, b: {style: deepObject, explode: true}, c: {explode: false}}}`,
			`{"a":["1 2","3"],"b":{"x":{"y":[true]}},"c":["p,q","r"]}`, "application/x-www-form-urlencoded", `a=1+2%7C3&b%5Bx%5D%5By%5D%5B0%5D=true&c=p%2Cq,r`},
		"whole form":  {`application/x-www-form-urlencoded: {schema: {type: object, additionalProperties: {type: string}}}`, `{"body":{"z":"1","a":"2"}}`, "application/x-www-form-urlencoded", `z=1&a=2`},
		"text":        {`text/plain: {schema: {type: string}}`, `{"body":"a\r\nb"}`, "text/plain", "a\r\nb"},
		"bytes":       {`application/octet-stream: {schema: {type: string, format: binary}}`, `{"body_base64":"AP8="}`, "application/octet-stream", "\x00\xff"},
		"an image":    {`image/png: {}`, `{"body_base64":"AP8="}`, "image/png", "\x00\xff"},
		"any type":    {`'*/*': {schema: {type: object, properties: {a: {}}}}`, `{"a":1}`, "application/json", `{"a":1}`},
		"nothing":     {`application/json: {schema: {type: object, properties: {a: {}}}}`, `{}`, "", ""},
		"null inside": {`application/json: {schema: {type: object, properties: {a: {type: string, nullable: true}, b: {type: string}}}}`, `{"a":null,"b":null}`, "application/json", `{"a":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			p, warnings := provider(t, s, document("  /x: {post: {operationId: op, requestBody: {content: {"+c.content+"}}}}\n"), nil)
			if len(warnings) > 0 {
				t.Error(warnings)
			}
			mustCall(t, p, "op", c.args)
			if got := s.last(t); got.body != c.want || got.header.Get("Content-Type") != c.media {
				t.Errorf("%s %s\nwant %s %s", got.header.Get("Content-Type"), got.body, c.media, c.want)
			}
		})
	}
}

func TestOptionalBody(t *testing.T) {
	s := newStub(t)
	p, _ := provider(t, s, document(`  /x: {post: {operationId: op, requestBody: {content: {application/json: {schema: {type: object, required: [a], properties: {a: {}, b: {}}}}}}}}`+"\n"), nil)
	mustCall(t, p, "op", `{}`)
	s.last(t)
	_, err := call(t, p, "op", `{"b":1}`)
	wantError(t, err, "argument a is missing")
}

const upload = `
  /x:
    post:
      operationId: op
      requestBody:
        required: true
        content:
          multipart/form-data:
            schema:
              type: object
              required: [file]
              properties:
                file: {type: string, format: binary}
                more: {type: array, items: {type: string, format: binary}}
                title: {type: string}
                tags: {type: array, items: {type: string}}
                meta: {type: object}
`

// A file is its content. What looks like a path is not one (octo-cli#177).
func testFiles(t *testing.T) {
	s := newStub(t)
	p, _ := provider(t, s, document(upload), nil)
	const args = `{"file":{"base64":"aGVsbG8=","filename":"a \"b\".txt","media_type":"text/plain"},"more":[{"base64":"MQ=="},{"base64":"Mg=="}],"title":"T","tags":["x","y"],"meta":{"k":1}}`
	mustCall(t, p, "op", args)
	first := s.last(t)
	media, params, err := mime.ParseMediaType(first.header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" {
		t.Fatal(media, err)
	}
	var got []string
	for form := multipart.NewReader(strings.NewReader(first.body), params["boundary"]); ; {
		part, err := form.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s|%s|%s|%s", part.FormName(), part.FileName(), part.Header.Get("Content-Type"), content))
	}
	want := []string{`file|a %22b%22.txt|text/plain|hello`, "more|file|application/octet-stream|1", "more|file|application/octet-stream|2", "title|||T", "tags|||x", "tags|||y", `meta||application/json|{"k":1}`}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	mustCall(t, p, "op", args)
	if again := s.last(t); again.body != first.body {
		t.Error("the same call is another request")
	}
	for args, words := range map[string]string{
		`{"file":"/etc/hosts"}`:                                        "argument file: got string, want object",
		`{"file":"@/etc/hosts"}`:                                       "argument file: got string, want object",
		`{"file":{"path":"/etc/hosts"}}`:                               "argument file",
		`{"file":{"base64":"/etc/hosts"}}`:                             "in base64",
		`{"file":{"base64":"MQ==","filename":"../../x"}}`:              "not a file name",
		`{"file":{"base64":"MQ==","filename":"a\r\nX: y"}}`:            "not a file name",
		`{"file":{"base64":"MQ==","media_type":"text/plain\r\nX: y"}}`: "not a media type",
		`{"file":{"base64":"` + strings.Repeat("A", 12<<20) + `"}}`:    "may have 8 MiB",
		`{"title":"x"}`: "argument file is missing",
	} {
		_, err := call(t, p, "op", args)
		wantError(t, err, words)
	}
	if len(s.got) > 0 {
		t.Errorf("the API got %d requests", len(s.got))
	}
}

func TestSwagger2(t *testing.T) {
	s := newStub(t)
	files := fstest.MapFS{"openapi.yaml": {Data: []byte(`
swagger: "2.0"
info: {title: t, version: "1"}
host: evil.example
consumes: [application/json]
securityDefinitions: {k: {type: apiKey, in: header, name: X-Token}}
parameters:
  Limit: {name: limit, in: query, type: integer}
paths:
  /pets/{id}:
    get:
      operationId: list
      parameters:
        - {name: id, in: path, type: string, required: true}
        - {name: tags, in: query, type: array, items: {type: string}, collectionFormat: pipes}
        - {name: multi, in: query, type: array, items: {type: string}, collectionFormat: multi}
        - {name: X-Token, in: header, type: string}
        - {$ref: '#/parameters/Limit'}
      responses: {200: {description: ok}}
    post:
      operationId: add
      parameters: [{name: id, in: path, type: string, required: true}, {name: pet, in: body, required: true, schema: {$ref: '#/definitions/Pet'}}]
      responses: {200: {description: ok}}
    put:
      operationId: upload
      consumes: [multipart/form-data]
      parameters: [{name: id, in: path, type: string, required: true}, {name: photo, in: formData, type: file}, {name: note, in: formData, type: string}]
      responses: {200: {description: ok}}
definitions:
  Pet: {type: object, required: [name], properties: {name: {type: string}, parent: {$ref: '#/definitions/Pet'}}}
`)}}
	p, warnings := provider(t, s, files, nil)
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	mustCall(t, p, "list", `{"id":"1","tags":["a","b"],"multi":["c","d"],"limit":2}`)
	if got := s.last(t).line; got != "GET /base/pets/1?tags=a%7Cb&multi=c&multi=d&limit=2" {
		t.Error(got)
	}
	mustCall(t, p, "add", `{"id":"1","name":"x","parent":{"name":"y"}}`)
	if got := s.last(t); got.line != "POST /base/pets/1" || got.body != `{"name":"x","parent":{"name":"y"}}` {
		t.Error(got)
	}
	mustCall(t, p, "upload", `{"id":"1","photo":{"base64":"MQ=="},"note":"n"}`)
	if got := s.last(t); !strings.Contains(got.body, `name="photo"; filename="file"`) || !strings.Contains(got.body, "\r\n\r\n1\r\n") {
		t.Error(got.body)
	}
	_, err := call(t, p, "list", `{"id":"1","X-Token":"x"}`)
	wantError(t, err, "there is no argument")
}

// What cannot be called is left out, and said; the rest is there.
func TestWarnings(t *testing.T) {
	p, warnings := importAll(t, document(`
  /good: {get: {operationId: good}}
  /cookie: {get: {operationId: cookie, parameters: [{name: s, in: cookie, required: true, schema: {type: string}}]}}
  /q?x=1: {get: {operationId: query}}
  /../up: {get: {operationId: up}}
  /open/{: {get: {operationId: open}}
  /undeclared/{x}: {get: {operationId: undeclared}}
  /same/{a}: {get: {operationId: same1}}
  /same/{b}: {get: {operationId: same2}}
  /style: {get: {operationId: style, parameters: [{name: a, in: query, style: matrix, schema: {}}, {name: b, in: nowhere, schema: {}}, {$ref: '#/components/parameters/Gone'}]}}
  /null: null
  /body: {post: {operationId: body, requestBody: {content: {multipart/mixed: {schema: {}}}}}}
`), nil)
	var got []string
	for _, o := range p.Operations {
		got = append(got, o.Tool)
	}
	if fmt.Sprint(got) != "[good same1 style undeclared]" {
		t.Error(got)
	}
	all := fmt.Sprint(warnings)
	for _, words := range []string{"cookie: the operation is left out", "query: the operation", "up: the operation", "open: the operation", `undeclared: parameter "x"`, "cannot be told from", "matrix", "nowhere", "Gone", "body: the operation"} {
		if !strings.Contains(all, words) {
			t.Errorf("no warning says %q:\n%v", words, warnings)
		}
	}
	src := apipackage.Source{Files: document("  /a: {get: {operationId: a}}\n"), Document: "openapi.yaml", Manifest: manifestOf("t", "https://api.example.com")}
	src.Manifest.Include = []apipackage.Selector{{Operation: "b"}}
	_, _, err := apipackage.Import(t.Context(), src)
	wantError(t, err, "no operation that can be called")
}
