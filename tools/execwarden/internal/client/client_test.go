package client

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

// TestRefusals says for each answer of a server, or of something else that answers in its place, what it is.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		code  problem.Code
		says  string
	}{
		"a problem": {func(w http.ResponseWriter, _ *http.Request) {
			problem.WriteHTTP(w, problem.New(problem.Conflict, "the state moved on"))
		}, problem.Conflict, "the state moved on"},
		"recorded and not known yet, with a status of success": {func(w http.ResponseWriter, _ *http.Request) {
			problem.WriteHTTP(w, problem.New(problem.Pending, "not confirmed"))
		}, problem.Pending, "not confirmed"},
		"a proxy": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>", http.StatusBadGateway)
		}, problem.Unavailable, "without saying why"},
		"a redirect, which would carry the token elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				t.Error("the redirect was followed")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, problem.Invalid, "set --url to where it leads"},
		"another program": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "hello")
		}, problem.Internal, "is it an ExecWarden API|is http"},
		"an answer without end": {func(w http.ResponseWriter, r *http.Request) {
			chunk := strings.Repeat(" ", 1<<20)
			for r.Context().Err() == nil {
				fmt.Fprint(w, chunk)
			}
		}, problem.TooLarge, "over"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := served(t, tc.serve).Whoami(t.Context())
			if problem.CodeOf(err) != tc.code {
				t.Fatalf("got %v, want %s", err, tc.code)
			}
			ok := false
			for says := range strings.SplitSeq(tc.says, "|") {
				ok = ok || strings.Contains(problem.DetailOf(err).Message, says)
			}
			if !ok {
				t.Errorf("it says %q", problem.DetailOf(err).Message)
			}
		})
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "warden", "ftp://warden", "https://", "https://u:p@warden", "https://warden/?x=1", "http://warden:port"} {
		if _, err := New(Config{URL: url}); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%q: %v", url, err)
		}
	}
	for url, exposes := range map[string]bool{
		"http://127.0.0.1:8080": false, "http://localhost": false, "http://[::1]:80": false,
		"https://warden.example.com/base": false, "http://warden.example.com": true, "http://10.0.0.1": true,
	} {
		c, err := New(Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		if c.ExposesToken() != exposes {
			t.Errorf("%q exposes the token: %v", url, !exposes)
		}
	}
}
