package command

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestFetchDocument(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/json", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a credential is sent along")
		}
		_, _ = w.Write([]byte("\n {}"))
	})
	mux.HandleFunc("/yaml", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("openapi: 3.0.0")) })
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxDocument+1)) })
	mux.Handle("/away", http.RedirectHandler("http://example.com/openapi.json", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	for path, want := range map[string]string{"/json": "openapi.json", "/yaml": "openapi.yaml"} {
		file, done, err := fetchDocument(t.Context(), s.URL+path)
		if err != nil || filepath.Base(file) != want {
			t.Fatalf("%s: %s, %v", path, file, err)
		}
		if text, err := os.ReadFile(file); err != nil || len(text) == 0 {
			t.Errorf("%s: %q, %v", path, text, err)
		}
		done()
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s is left behind", file)
		}
	}
	for address, code := range map[string]problem.Code{
		s.URL + "/huge":                 problem.TooLarge,
		s.URL + "/nosuch":               problem.Upstream,
		s.URL + "/away":                 problem.Invalid,
		s.URL + "/round":                problem.Invalid,
		"http://example.com/x.json":     problem.Invalid,
		"http://user:word@example.com/": problem.Invalid,
		"https://%zz":                   problem.Invalid,
		"http://127.0.0.1:1/":           problem.Upstream,
	} {
		_, _, err := fetchDocument(t.Context(), address)
		if problem.CodeOf(err) != code || strings.Contains(problem.DetailOf(err).Message, "word") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// What a site of elsewhere says does not ask what listens on this machine.
func TestLedToThisMachine(t *testing.T) {
	request := func(address string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"https://example.com/", "http://localhost:8080/", false},
		{"https://example.com/", "http://127.0.0.1/", false},
		{"https://example.com/", "https://example.org/", true},
		{"http://localhost:8080/a", "http://localhost:8080/b", true},
		{"http://localhost:8080/a", "https://example.com/", true},
	} {
		if err := hop(request(c.to), []*http.Request{request(c.from)}); (err == nil) != c.ok {
			t.Errorf("from %s to %s: %v", c.from, c.to, err)
		}
	}
}
