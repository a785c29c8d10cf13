package apipackage_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

const files = `
  /repos/{repo}/contents/{path}:
    get:
      operationId: op
      parameters:
        - {name: repo, in: path, required: true, schema: {type: string}}
        - {name: path, in: path, required: true, schema: {type: string}, x-multi-segment: true}
`

// An argument stays in the segment that it is put into (go-github#4150 is what happens otherwise).
func testPathArguments(t *testing.T) {
	s := newStub(t)
	p, _ := provider(t, s, document(files), nil)
	for _, c := range []struct{ repo, path, want string }{
		{"a", "b/c", "a/contents/b/c"},
		{"a/b", "c", "a%2Fb/contents/c"},
		{"a?admin=1", "c", "a%3Fadmin%3D1/contents/c"},
		{"a#x", "c", "a%23x/contents/c"},
		{"a;v=1", "c", "a%3Bv%3D1/contents/c"},
		{"100%", "50%25", "100%25/contents/50%2525"},
		{"...", "a..b/.c", ".../contents/a..b/.c"},
		{"\u00e9\u2603", "x y", "%C3%A9%E2%98%83/contents/x%20y"},
		{`a\b`, "c", "a%5Cb/contents/c"},
		{"http://evil.example", "c", "http%3A%2F%2Fevil.example/contents/c"},
		{"@evil.example", "c", "%40evil.example/contents/c"},
	} {
		args, err := json.Marshal(map[string]string{"repo": c.repo, "path": c.path})
		if err != nil {
			t.Fatal(err)
		}
		mustCall(t, p, "op", string(args))
		if got := s.last(t).line; got != "GET /base/repos/"+c.want {
			t.Errorf("%q, %q: %s", c.repo, c.path, got)
		}
	}
	for _, bad := range []string{
		"..", ".", "../secret", "a/../../b", "%2e%2e", "%2E%2E/x", ".%2e", "%252e%252e", "..%2fx", `..\x`, "..;a=b", "..;/x",
		"%25252e%25252e", "%2525252525252e", "a\x00b", "a\nb", "", "../", "./x",
	} {
		for _, args := range []map[string]string{{"repo": bad, "path": "x"}, {"repo": "x", "path": bad}} {
			raw, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := call(t, p, "op", string(raw)); err == nil {
				t.Errorf("%s went out as %s", raw, s.last(t).line)
			}
		}
	}
	for _, bad := range []string{"a//b", "/a", "a/", "a/../b"} {
		raw, err := json.Marshal(map[string]string{"repo": "x", "path": bad})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(t, p, "op", string(raw)); err == nil {
			t.Errorf("%s went out as %s", raw, s.last(t).line)
		}
	}
}

// A value that styles make part of a segment cannot make it a dot segment either.
func testPathStylesDoNotClimb(t *testing.T) {
	s := newStub(t)
	p, _ := provider(t, s, document(`
  /label/{v}: {get: {operationId: label, parameters: [{name: v, in: path, required: true, style: label, explode: true, schema: {}}]}}
  "/part/.{v}": {get: {operationId: part, parameters: [{name: v, in: path, required: true, schema: {type: string}}]}}
  "/two/{a}{b}": {get: {operationId: two, parameters: [{name: a, in: path, required: true, schema: {type: string}}, {name: b, in: path, required: true, schema: {type: string}}]}}
`), nil)
	for tool, all := range map[string][]string{
		"label": {`{"v":""}`, `{"v":"."}`, `{"v":[""]}`, `{"v":["",""]}`},
		"part":  {`{"v":"."}`},
		"two":   {`{"a":".","b":"."}`, `{"a":"%2e","b":"%2e"}`, `{"a":"%2","b":"e%2e"}`},
	} {
		for _, args := range all {
			if _, err := call(t, p, tool, args); err == nil {
				t.Errorf("%s %s went out as %s", tool, args, s.last(t).line)
			}
		}
	}
}

// Whatever an argument is, the request's path has as many segments as the document's, below the base, and reads back as
// the argument.
func FuzzPathArguments(f *testing.F) {
	for _, seed := range []string{"a", "..", "%2e%2e", "a/b", "..;/", `\..\`, "%", "é", "a?b#c", "%252e", "\r\n", "//", "a%2f..%2fb"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, repo, path string) {
		s := newRecorder()
		p := s.provider(t, files)
		args, err := json.Marshal(map[string]string{"repo": repo, "path": path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Call(t.Context(), upstream.Call{Tool: "op", Args: args}); err != nil {
			return
		}
		u := s.url
		rest, ok := strings.CutPrefix(u.EscapedPath(), "/base/repos/")
		if !ok || u.Host != "api.example.com" || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("%q, %q: %s", repo, path, u)
		}
		segments := strings.Split(rest, "/")
		if len(segments) < 3 || segments[1] != "contents" {
			t.Fatalf("%q, %q: %s", repo, path, u)
		}
		for i, segment := range segments {
			decoded, err := url.PathUnescape(segment)
			if err != nil || decoded == ".." || decoded == "." || decoded == "" {
				t.Fatalf("%q, %q: segment %d of %s", repo, path, i, u)
			}
		}
		var clean map[string]string // as JSON carries them
		if err := json.Unmarshal(args, &clean); err != nil {
			t.Fatal(err)
		}
		if got, err := url.PathUnescape(segments[0]); err != nil || got != clean["repo"] {
			t.Fatalf("repo %q arrives as %q: %v", clean["repo"], got, err)
		}
		if got, err := url.PathUnescape(strings.Join(segments[2:], "/")); err != nil || got != clean["path"] {
			t.Fatalf("path %q arrives as %q: %v", clean["path"], got, err)
		}
	})
}
