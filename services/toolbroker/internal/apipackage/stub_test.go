package apipackage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/services/toolbroker/internal/apipackage"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// seen is a request as the API got it.
type seen struct {
	line   string // method and target, byte for byte
	header http.Header
	body   string
}

// stub is an API that keeps the requests that it gets.
type stub struct {
	*httptest.Server
	got    []seen
	answer http.HandlerFunc
}

func newStub(t *testing.T) *stub {
	t.Helper()
	s := &stub{answer: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true}`)
	}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("the body cannot be read: %v", err)
		}
		s.got = append(s.got, seen{r.Method + " " + r.RequestURI, r.Header, string(body)})
		s.answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// last gives the one request since it was asked before.
func (s *stub) last(t *testing.T) seen {
	t.Helper()
	if len(s.got) != 1 {
		t.Fatalf("the API got %d requests, want 1", len(s.got))
	}
	one := s.got[0]
	s.got = nil
	return one
}

const canary = "canary_0123456789"

func secret(context.Context) (vault.Secret, error) { return vault.NewSecret(canary), nil }

// document is a document with these paths, in YAML.
func document(paths string) fstest.MapFS {
	return fstest.MapFS{"openapi.yaml": {Data: []byte("openapi: 3.0.3\ninfo: {title: t, version: '1'}\npaths:\n" + paths)}}
}

func importAll(t *testing.T, files fstest.MapFS, change func(*apipackage.Source)) (*apipackage.Package, []apipackage.Warning) {
	t.Helper()
	src := apipackage.Source{Files: files, Document: "openapi.yaml", Manifest: manifestOf("test", "https://api.example.com/base")}
	if change != nil {
		change(&src)
	}
	p, warnings, err := apipackage.Import(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	return kept(t, p), warnings
}

// kept is a package after it was stored and read again, as every one is before its tools are called.
func kept(t *testing.T, p *apipackage.Package) *apipackage.Package {
	t.Helper()
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := apipackage.Unmarshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// provider calls the tools of a document at a stub, below /base.
func provider(t *testing.T, s *stub, files fstest.MapFS, change func(*apipackage.Source)) (*apipackage.Provider, []apipackage.Warning) {
	t.Helper()
	p, warnings := importAll(t, files, func(src *apipackage.Source) {
		src.Manifest.BaseURL = s.URL + "/base"
		if change != nil {
			change(src)
		}
	})
	return open(t, s, p), warnings
}

func open(t *testing.T, s *stub, p *apipackage.Package) *apipackage.Provider {
	t.Helper()
	made, err := apipackage.New(p, secret, s.Client().Transport)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func call(t *testing.T, p *apipackage.Provider, tool, args string) (upstream.Result, error) {
	t.Helper()
	return p.Call(t.Context(), upstream.Call{Tool: tool, Args: json.RawMessage(args), Effect: "eff_1"})
}

func mustCall(t *testing.T, p *apipackage.Provider, tool, args string) upstream.Result {
	t.Helper()
	r, err := call(t, p, tool, args)
	if err != nil {
		t.Fatalf("%s %s: %v", tool, args, err)
	}
	return r
}

func answerOf(t *testing.T, r upstream.Result) apipackage.Answer {
	t.Helper()
	var a apipackage.Answer
	if err := json.Unmarshal(r.Content, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func wantError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("the error is %v, want one with %q", err, words)
	}
}

// recorder is a way out that leads nowhere, for tests that make very many calls.
type recorder struct {
	url *url.URL
}

func newRecorder() *recorder { return &recorder{} }

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.url = req.URL
	return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

func (r *recorder) provider(t *testing.T, paths string) *apipackage.Provider {
	t.Helper()
	p, _ := importAll(t, document(paths), nil)
	made, err := apipackage.New(p, secret, r)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
