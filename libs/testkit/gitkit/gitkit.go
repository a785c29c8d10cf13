// Package gitkit is a real git server for tests: git's own http-backend, behind a token.
package gitkit

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// Server serves bare repositories to whoever has the token.
type Server struct {
	*httptest.Server
	Dir      string // <owner>/<name>.git
	Requests atomic.Int64
	// Answer, when set, answers in the place of git.
	Answer atomic.Pointer[http.HandlerFunc]

	t       testing.TB
	handler http.Handler
}

// Start starts a server with one repository, acme/shop, whose branch main has one commit. It skips the test where there is
// no git.
func Start(t testing.TB, token string) *Server {
	t.Helper()
	s := Make(t, token)
	s.Server = httptest.NewServer(s.handler)
	t.Cleanup(s.Server.Close)
	return s
}

// Make is Start for whoever serves it under an address of their own.
func Make(t testing.TB, token string) *Server {
	t.Helper()
	program, err := exec.LookPath("git")
	if err != nil {
		t.Skip("SKIPPED: no git (apt-get install git)")
	}
	s := &Server{Dir: t.TempDir(), t: t}
	handler := &cgi.Handler{Path: program, Args: []string{"http-backend"}, InheritEnv: []string{"PATH"},
		Env: []string{"GIT_PROJECT_ROOT=" + s.Dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=test", "HOME=" + s.Dir, "GIT_CONFIG_NOSYSTEM=1"}}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+token))
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Requests.Add(1)
		if r.Header.Get("Authorization") != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		if answer := s.Answer.Load(); answer != nil {
			(*answer)(w, r)
			return
		}
		body, err := io.ReadAll(r.Body) // CGI wants to know how long it is
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		one := *handler
		one.Env = append(append([]string{}, handler.Env...), "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
		one.ServeHTTP(w, r)
	})
	s.handler = serve
	work := filepath.Join(t.TempDir(), "work")
	s.Git("", "init", "-q", "-b", "main", work)
	if err := os.WriteFile(filepath.Join(work, "README.md"), []byte("A shop.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Git(work, "add", ".")
	s.Git(work, "commit", "-qm", "Begin")
	s.Git("", "clone", "-q", "--bare", work, s.Repo("acme/shop"))
	s.Git(s.Repo("acme/shop"), "config", "http.receivepack", "true")
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handler.ServeHTTP(w, r)
}

// Repo is a repository's directory.
func (s *Server) Repo(name string) string { return filepath.Join(s.Dir, name+".git") }

// Host is the server's address and port.
func (s *Server) Host() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.Host
}

// Add commits files to main of acme/shop.
func (s *Server) Add(files map[string]string) {
	s.t.Helper()
	work := filepath.Join(s.t.TempDir(), "work")
	s.Git("", "clone", "-q", s.Repo("acme/shop"), work)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	s.Git(work, "add", ".")
	s.Git(work, "commit", "-qm", "Add")
	s.Git(work, "push", "-q", "origin", "main")
}

// Ref is the commit of a ref of acme/shop, empty when there is none.
func (s *Server) Ref(ref string) string {
	cmd := exec.Command("git", "-C", s.Repo("acme/shop"), "rev-parse", "--verify", "-q", ref)
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Git runs git as somebody.
func (s *Server) Git(dir string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
