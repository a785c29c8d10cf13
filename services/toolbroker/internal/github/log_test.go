package github_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/services/toolbroker/internal/github"
)

// A log is fetched from where GitHub says that it is, without the credential, and only from a host that the connection
// allows (go-github#4190).
func testJobLogs(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Header.Get("Authorization"))
		mu.Unlock()
		switch r.URL.Path {
		case "/log":
			for i := range 500 {
				fmt.Fprintf(w, "line %d\n", i)
			}
		case "/again":
			http.Redirect(w, r, "/log", http.StatusFound)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer store.Close()
	to := store.URL + "/log?sig=secret"
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/jobs") {
			fmt.Fprint(w, `{"jobs":[{"id":8,"name":"build","conclusion":"failure"},{"id":9,"name":"lint","conclusion":"success"}]}`)
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	}))
	defer api.Close()
	host := func(raw string) string {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return u.Host
	}
	files, err := egress.New(egress.Rule{Hosts: []string{host(store.URL)}, AllowPrivate: []string{host(store.URL)}, MaxRedirects: -1})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	allowed := &hub{Provider: provider(t, github.Config{URL: api.URL, Transport: transport, Files: files})}
	defer func() { _ = allowed.Provider.Close() }()
	const args = `{"owner":"acme","repo":"shop",`
	got, err := allowed.do(t, "get_job_logs", args+`"job_id":8,"tail_lines":2}`)
	if err != nil || !strings.Contains(string(got.Content), `"log":"line 498\nline 499\n","truncated":true`) {
		t.Errorf("%s, %v", got.Content, err)
	}
	got, err = allowed.do(t, "get_job_logs", args+`"run_id":5,"failed_only":true}`)
	if err != nil || !strings.Contains(string(got.Content), `"name":"build"`) || strings.Contains(string(got.Content), "lint") || !strings.Contains(string(got.Content), "line 499") {
		t.Errorf("%s, %v", got.Content, err)
	}
	got, err = allowed.do(t, "get_job_logs", args+`"run_id":5,"return_content":false}`)
	if err != nil || strings.Contains(string(got.Content), "line 499") {
		t.Errorf("%s, %v", got.Content, err)
	}
	mu.Lock()
	for _, a := range asked {
		if a != "" {
			t.Errorf("the store was shown %q", a)
		}
	}
	before := len(asked)
	mu.Unlock()
	for name, c := range map[string]struct {
		p  *github.Provider
		to string
	}{
		"no hosts are allowed":    {provider(t, github.Config{URL: api.URL, Transport: transport}), to},
		"another host":            {allowed.Provider, "https://evil.example/log?sig=secret"},
		"a metadata service":      {allowed.Provider, "http://169.254.169.254/latest?sig=secret"},
		"a redirect that goes on": {allowed.Provider, store.URL + "/again?sig=secret"},
		"no log":                  {allowed.Provider, store.URL + "/none?sig=secret"},
	} {
		to = c.to
		got, err := (&hub{Provider: c.p}).do(t, "get_job_logs", args+`"job_id":8}`)
		if err != nil || !got.ToolError || strings.Contains(string(got.Content), "sig=") {
			t.Errorf("%s: %s, %v", name, got.Content, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != before+2 {
		t.Errorf("the store was asked %d times more", len(asked)-before)
	}
}
