package apipackage_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

const things = `
  /things/{id}:
    parameters:
      - {name: id, in: path, required: true, schema: {type: string}}
      - {name: Authorization, in: header, schema: {type: string}}
      - {name: X-Api-Key, in: header, schema: {type: string}}
      - {name: key, in: query, schema: {type: string}}
      - {name: Cookie, in: header, schema: {type: string}}
      - {name: Host, in: header, schema: {type: string}}
      - {name: X-Forwarded-For, in: header, schema: {type: string}}
      - {name: Idempotency-Key, in: header, schema: {type: string}}
      - {name: session, in: cookie, schema: {type: string}}
      - {name: filter, in: query, schema: {type: object}}
    get: {operationId: read, summary: Read a thing}
    put:
      operationId: write
      requestBody: {content: {application/json: {schema: {type: object, properties: {id: {type: string}, name: {type: string}, made: {type: string, readOnly: true}}, required: [name, made]}}}}
    delete: {operationId: remove}
`

// No argument is or becomes a credential, and the credential is added last (apisix#13959).
func testCredentials(t *testing.T) {
	for _, c := range []struct {
		auth   apipackage.Auth
		header string
		want   string
		target string
	}{
		{apipackage.Auth{Kind: apipackage.AuthNone}, "Authorization", "", ""},
		{apipackage.Auth{Kind: apipackage.AuthBearer}, "Authorization", "Bearer " + canary, ""},
		{apipackage.Auth{Kind: apipackage.AuthBasic}, "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(canary)), ""},
		{apipackage.Auth{Kind: apipackage.AuthHeader, Name: "X-Api-Key"}, "X-Api-Key", canary, ""},
		{apipackage.Auth{Kind: apipackage.AuthQuery, Name: "key"}, "Authorization", "", "key=" + canary},
	} {
		t.Run(string(c.auth.Kind), func(t *testing.T) {
			s := newStub(t)
			p, _ := provider(t, s, document(things), func(src *apipackage.Source) {
				src.Manifest.Auth, src.Manifest.IdempotencyHeader = c.auth, "Idempotency-Key"
			})
			mustCall(t, p, "read", `{"id":"1","filter":{"a":"b"}}`)
			got := s.last(t)
			target := "GET /base/things/1?a=b"
			if c.target != "" {
				target += "&" + c.target
			}
			if got.header.Get(c.header) != c.want || got.line != target {
				t.Errorf("%s, %s %q, want %s, %q", got.line, c.header, got.header.Get(c.header), target, c.want)
			}
			for _, args := range []string{`"Authorization":"x"`, `"authorization":"x"`, `"Cookie":"x"`, `"Host":"x"`, `"X-Forwarded-For":"x"`, `"Idempotency-Key":"x"`, `"session":"x"`} {
				_, err := call(t, p, "read", `{"id":"1",`+args+`}`)
				wantError(t, err, "there is no argument")
			}
			if c.auth.Name != "" {
				_, err := call(t, p, "read", fmt.Sprintf(`{"id":"1",%q:"x"}`, c.auth.Name))
				wantError(t, err, "there is no argument")
				_, err = call(t, p, "read", `{"id":"1","filter":{"KEY":"x","key":"x"}}`)
				if c.auth.Kind == apipackage.AuthQuery {
					wantError(t, err, "a parameter of its own")
				}
			}
		})
	}
	s := newStub(t)
	p, _ := importAll(t, document(things), func(src *apipackage.Source) { src.Manifest.BaseURL = s.URL })
	for _, secret := range []string{"", "a\r\nX-Admin: 1"} {
		made, err := apipackage.New(p, func(context.Context) (vault.Secret, error) { return vault.NewSecret(secret), nil }, s.Client().Transport)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(t, made, "read", `{"id":"1"}`); err == nil || len(s.got) > 0 {
			t.Errorf("credential %q was sent: %v", secret, err)
		}
	}
}

func TestArguments(t *testing.T) {
	s := newStub(t)
	p, _ := provider(t, s, document(`
  /n/{id}:
    post:
      operationId: op
      parameters:
        - {name: id, in: path, required: true, schema: {type: string}}
        - {name: limit, in: query, required: true, schema: {type: integer, maximum: 10}}
        - {name: 'filter[a.b]', in: query, schema: {type: string, pattern: '^(?!x)', nullable: true}}
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              required: [name]
              properties:
                id: {type: integer}
                name: {type: string, maxLength: 3}
                on: {type: boolean}
                nested: {type: object, properties: {count: {type: array, items: {type: number}}, secret: {type: string, readOnly: true}}}
                kind: {type: string, enum: [a, b]}
                free: {}
`), nil)
	mustCall(t, p, "op", `{"path_id":7,"limit":"5","id":"12","name":"abc","on":"true","nested":{"count":["1","2.50"]},"kind":null,"filter_a.b":"x","free":{"z":1,"a":[1e3,"<&>"]}}`)
	if got := s.last(t); got.line != "POST /base/n/7?limit=5&filter%5Ba.b%5D=x" || got.body != `{"id":12,"name":"abc","on":true,"nested":{"count":[1,2.50]},"free":{"z":1,"a":[1e3,"<&>"]}}` {
		t.Errorf("%s\n%s", got.line, got.body)
	}
	for args, words := range map[string]string{
		`{"path_id":"1","name":"a"}`:                                    "argument limit is missing",
		`{"path_id":"1","limit":5}`:                                     "argument name is missing",
		`{"path_id":"1","limit":50,"name":"a"}`:                         "argument limit: maximum: got 50, want 10",
		`{"path_id":"1","limit":"5x","name":"a"}`:                       "argument limit: got string, want integer",
		`{"path_id":"1","limit":5,"name":"abcd"}`:                       "argument name: maxLength",
		`{"path_id":"1","limit":5,"name":"a","kind":"c"}`:               "argument kind: value must be one of 'a', 'b'",
		`{"path_id":"1","limit":5,"name":"a","nested":{"count":["x"]}}`: "argument nested.count.0: got string, want number",
		`{"path_id":"1","limit":5,"name":null}`:                         "argument name: got null",
		`{"path_id":"1","limit":5,"name":"a","made":"x"}`:               `no argument "made"`,
	} {
		_, err := call(t, p, "op", args)
		wantError(t, err, words)
		if problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: code %s", args, problem.CodeOf(err))
		}
	}
	// A large array is checked, and refused by size where arguments are taken in; here it only has to end.
	mustCall(t, p, "op", `{"path_id":"1","limit":1,"name":"a","nested":{"count":[`+strings.Repeat("1,", 50_000)+`1]}}`)
}

func TestReadOnlyIsNotAsked(t *testing.T) {
	p, _ := importAll(t, document(things), nil)
	o, _ := p.Operation("write")
	for _, arg := range []string{"made", "session", "Authorization"} {
		if o.Input.Properties[arg] != nil {
			t.Errorf("there is an argument %s", arg)
		}
	}
	for _, arg := range []string{"path_id", "id", "name", "filter"} {
		if o.Input.Properties[arg] == nil {
			t.Errorf("there is no argument %s: %v", arg, o.Input.Properties)
		}
	}
}

func TestAnswers(t *testing.T) {
	long := strings.Repeat("ä", 2<<20)
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		toolError bool
		want      string
	}{
		"JSON":           {reply(200, "application/json; charset=utf-8", `{"a":1.0,"b":[]}`), false, `{"status":200,"body":{"a":1.0,"b":[]}}`},
		"JSON of a kind": {reply(201, "application/vnd.api+json", `[1]`, "Location", "/things/2"), false, `{"status":201,"body":[1],"location":"/things/2"}`},
		"text":           {reply(200, "text/plain", "hello"), false, `{"status":200,"text":"hello","content_type":"text/plain"}`},
		"broken JSON":    {reply(200, "application/json", `{"a":`), false, `{"status":200,"text":"{\"a\":"}`},
		"bytes":          {reply(200, "image/png", "\x89PNG\x00\xff"), false, `{"status":200,"base64":"iVBORwD/","content_type":"image/png"}`},
		"nothing":        {reply(204, "", ""), false, `{"status":204}`},
		"a next page": {reply(200, "application/json", `[]`, "Link", `<https://evil.example/x?page=1>; rel="prev", <https://api.example.com/things?page=3&per_page=2>; rel="last next"`), false,
			`{"status":200,"body":[],"next_page":"/things?page=3\u0026per_page=2"}`},
		"refused":      {reply(422, "application/json", `{"message":"no"}`), true, `{"status":422,"body":{"message":"no"}}`},
		"rate limited": {reply(429, "text/plain", "slow", "Retry-After", "30"), true, `{"status":429,"text":"slow","content_type":"text/plain","retry_after":"30"}`},
		"a redirect":   {reply(302, "", "", "Location", "https://evil.example/"), true, `{"status":302,"location":"https://evil.example/","message":"the API redirects, and redirects are not followed"}`},
		"an echo": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]string{"you": r.Header.Get("Authorization")})
		}, false, `{"status":200,"body":{"you":"Bearer [redacted]"}}`},
		"too large":       {reply(200, "text/plain", long), false, ""},
		"large JSON":      {reply(200, "application/json", `{"a":"`+long+`"}`), false, ""},
		"large bytes":     {reply(200, "application/zip", strings.Repeat("\x00\xff", 1<<20)), false, ""},
		"a large error":   {reply(400, "text/html", long), true, ""},
		"escapes":         {reply(200, "text/plain", strings.Repeat("\x01", 900<<10)), false, ""},
		"JSON that grows": {reply(200, "application/json", `"`+strings.Repeat("<", 900<<10)+`"`), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			s.answer = c.answer
			p, _ := provider(t, s, document(things), nil)
			r := mustCall(t, p, "read", `{"id":"1"}`)
			if r.ToolError != c.toolError || len(r.Content) > upstream.MaxResult || !json.Valid(r.Content) {
				t.Errorf("tool error %t, %d bytes", r.ToolError, len(r.Content))
			}
			if len(s.got) != 1 {
				t.Errorf("%d requests", len(s.got))
			}
			if c.want == "" {
				if a := answerOf(t, r); !a.Truncated || a.Body != nil {
					t.Errorf("the answer does not say that it was cut: %.200s", r.Content)
				}
			} else if string(r.Content) != c.want {
				t.Errorf("%s\nwant %s", r.Content, c.want)
			}
		})
	}
}

func reply(status int, media, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if media != "" {
			w.Header().Set("Content-Type", media)
		}
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// What did not come back may have happened, when it was a write; what was refused did not.
func TestFailures(t *testing.T) {
	hangUp := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		tool      string
		ambiguous bool
		words     string
	}{
		"a read fails":    {reply(503, "text/plain", "down "+canary, "Retry-After", "9"), "read", false, "503 Service Unavailable, and to try again after 9: down [redacted]"},
		"a write fails":   {reply(500, "", ""), "write", true, "500"},
		"a read is cut":   {hangUp, "read", false, "did not answer"},
		"a write is cut":  {hangUp, "write", true, "did not answer"},
		"a delete is cut": {hangUp, "remove", true, "did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			s.answer = c.answer
			p, _ := provider(t, s, document(things), nil)
			args := `{"id":"1"}`
			if c.tool == "write" {
				args = `{"path_id":"1","name":"x"}`
			}
			_, err := call(t, p, c.tool, args)
			wantError(t, err, c.words)
			if upstream.Ambiguous(err) != c.ambiguous || problem.CodeOf(err) != problem.Upstream || strings.Contains(err.Error(), canary) {
				t.Errorf("ambiguous %t, code %s: %v", upstream.Ambiguous(err), problem.CodeOf(err), err)
			}
		})
	}
	t.Run("an answer that breaks off", func(t *testing.T) {
		s := newStub(t)
		s.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		p, _ := provider(t, s, document(things), nil)
		if a := answerOf(t, mustCall(t, p, "write", `{"path_id":"1","name":"x"}`)); a.Status != 200 || !a.Truncated || !strings.Contains(a.Message, "broke off") {
			t.Errorf("%+v", a)
		}
		if _, err := call(t, p, "read", `{"id":"1"}`); err == nil || upstream.Ambiguous(err) {
			t.Errorf("half an answer of a read is taken for all of it: %v", err)
		}
	})
	t.Run("refused on the way out", func(t *testing.T) {
		p, _ := importAll(t, document(things), nil)
		made, err := apipackage.New(p, secret, wayOut(func(*http.Request) error { return problem.New(problem.Denied, "a private address") }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(t, made, "remove", `{"id":"1"}`); upstream.Ambiguous(err) || problem.CodeOf(err) != problem.Denied {
			t.Error(err)
		}
	})
	t.Run("the credential in an error", func(t *testing.T) {
		p, _ := importAll(t, document(things), func(src *apipackage.Source) {
			src.Manifest.Auth = apipackage.Auth{Kind: apipackage.AuthQuery, Name: "key"}
		})
		made, err := apipackage.New(p, secret, wayOut(func(r *http.Request) error { return errors.New("dial " + r.URL.String()) }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(t, made, "remove", `{"id":"1"}`); err == nil || strings.Contains(err.Error(), canary) {
			t.Error(err)
		}
	})
}

type wayOut func(*http.Request) error

func (f wayOut) RoundTrip(r *http.Request) (*http.Response, error) { return nil, f(r) }

func TestIdempotencyAndProbe(t *testing.T) {
	yes := connection.Keyed
	s := newStub(t)
	p, _ := provider(t, s, document(things), func(src *apipackage.Source) {
		src.Manifest.IdempotencyHeader = "Idempotency-Key"
		src.Manifest.Operations = map[string]apipackage.Override{"write": {Effect: yes}, "remove": {Effect: connection.Probeable, Probe: "read"}}
	})
	mustCall(t, p, "write", `{"path_id":"1","name":"x"}`)
	if got := s.last(t).header.Get("Idempotency-Key"); got != "eff_1" {
		t.Errorf("the key is %q", got)
	}
	mustCall(t, p, "remove", `{"id":"1"}`)
	if got := s.last(t).header.Get("Idempotency-Key"); got != "" {
		t.Errorf("the key of a call that is not keyed is %q", got)
	}
	probe := upstream.Call{Tool: "remove", Args: json.RawMessage(`{"id":"1"}`)}
	if _, found, err := p.Probe(t.Context(), probe); err != nil || !found {
		t.Error(found, err)
	}
	if got := s.last(t).line; got != "GET /base/things/1" {
		t.Error(got)
	}
	s.answer = reply(404, "", "")
	if _, found, err := p.Probe(t.Context(), probe); err != nil || found {
		t.Error(found, err)
	}
	s.answer = reply(403, "", "")
	if _, _, err := p.Probe(t.Context(), probe); err == nil {
		t.Error("what cannot be looked at is said not to be there")
	}
	if _, _, err := p.Probe(t.Context(), upstream.Call{Tool: "write"}); err == nil {
		t.Error("a call without a probe is probed")
	}
}
