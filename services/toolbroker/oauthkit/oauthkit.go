// Package oauthkit is an MCP server that is protected by an authorization server, for tests: both on loopback, speaking
// the real wire. It rotates refresh tokens, and one that comes a second time ends the login, as RFC 9700 advises.
package oauthkit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Faults is what the servers do wrong, or otherwise.
type Faults struct {
	NoS256      bool          // the metadata names no S256
	NoRegister  bool          // clients are not registered by themselves
	NoHeader    bool          // a refusal does not say where the metadata is
	RootOnly    bool          // the resource's metadata is at the root of the site only
	NoMetadata  bool          // no metadata of the resource at all
	Resource    string        // that the metadata is about, in place of the MCP server's
	Server      string        // that the resource's metadata names, in place of its own
	Issuer      string        // that the metadata names, in place of its own
	TokenURL    string        // that the metadata names, in place of its own
	Iss         string        // that the browser is sent back with; "-" is none
	Huge        bool          // metadata without end
	Revoked     bool          // refresh tokens are refused
	Slow        time.Duration // that the token endpoint takes
	Hold        chan struct{} // until it is closed, the token endpoint's answers are not given
	Unavailable int           // token requests that are answered with 503 first
	Quote       bool          // errors quote what was sent
	ForgetOld   bool          // access tokens are not taken when a newer one was made
	Wants       string        // the scopes that a call of a tool takes
	Withhold    bool          // they are given to nobody
	Offline     bool          // there is a scope for refresh tokens
	Documents   bool          // clients may be known by a metadata document
}

// Server is both servers.
type Server struct {
	MCP, Auth *httptest.Server
	Life      time.Duration // of an access token

	mu        sync.Mutex
	faults    Faults
	clients   map[string]string // id: secret
	codes     map[string]grant
	access    map[string]time.Time
	scopes    map[string]string
	refresh   map[string]bool // false: spent
	ended     bool            // a refresh token came twice
	seq       int
	refreshed int
	asked     []url.Values // at the token endpoint
	revoked   []string
	secrets   []string
	used      []string // access tokens of requests that were let through
	handler   http.Handler
}

type grant struct{ challenge, redirect, client, resource, scope string }

// Secret is the secret of the client that was registered by hand, ClientID its id.
const (
	ClientID = "by-hand"
	Secret   = "canary/of+the client's=secret"
)

// Start runs both until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{Life: time.Hour, clients: map[string]string{ClientID: Secret}, codes: map[string]grant{}, access: map[string]time.Time{}, scopes: map[string]string{}, refresh: map[string]bool{}}
	server := mcp.NewServer(&mcp.Implementation{Name: "tickets", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(_ context.Context, _ *mcp.CallToolRequest, in map[string]any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(in["say"])}}}, nil, nil
	})
	s.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	s.MCP = httptest.NewServer(http.HandlerFunc(s.protected))
	auth := http.NewServeMux()
	auth.HandleFunc("GET /.well-known/oauth-authorization-server/tenant", s.metadata)
	auth.HandleFunc("POST /register", s.register)
	auth.HandleFunc("GET /authorize", s.authorize)
	auth.HandleFunc("POST /token", s.token)
	auth.HandleFunc("POST /revoke", s.revoke)
	s.Auth = httptest.NewServer(auth)
	t.Cleanup(func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
		// Whoever listens does so for as long as they live, which is longer than this server.
		_ = s.MCP.Listener.Close()
		s.MCP.CloseClientConnections()
		s.MCP.Close()
		s.Auth.Close()
	})
	return s
}

// URL is the MCP server's.
func (s *Server) URL() string { return s.MCP.URL + "/mcp" }

// Issuer is the authorization server's.
func (s *Server) Issuer() string { return s.Auth.URL + "/tenant" }

// Private is what a connection lists to reach both.
func (s *Server) Private() []string {
	return []string{strings.TrimPrefix(s.MCP.URL, "http://"), strings.TrimPrefix(s.Auth.URL, "http://")}
}

// Change sets what goes wrong.
func (s *Server) Change(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Expire ends every access token.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.access)
}

// Refreshed counts the tokens that were renewed, and says whether a refresh token came twice.
func (s *Server) Refreshed() (n int, twice bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshed, s.ended
}

// Asked is what the token endpoint was asked, and Revoked which tokens ended by that.
func (s *Server) Asked() []url.Values { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.asked) }

// Revoked lists the tokens that were revoked.
func (s *Server) Revoked() []string { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.revoked) }

// Secrets lists everything that nobody but the broker may have: codes, verifiers, tokens, secrets.
func (s *Server) Secrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(slices.Clone(s.secrets), Secret)
}

func (s *Server) fresh(kind string) string {
	s.seq++
	text := fmt.Sprintf("%s-canary-%d-%s", kind, s.seq, strings.Repeat("x", 20))
	s.secrets = append(s.secrets, text)
	return text
}

func (s *Server) protected(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	f := s.faults
	ends, known := s.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	scopes := strings.Fields(s.scopes[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")])
	s.mu.Unlock()
	const name = "/.well-known/oauth-protected-resource"
	switch {
	case r.URL.Path == name && f.RootOnly, r.URL.Path == name+"/mcp" && !f.RootOnly:
		if f.NoMetadata {
			http.NotFound(w, r)
			return
		}
		resource := s.URL()
		if f.RootOnly {
			resource = s.MCP.URL
		}
		if f.Resource != "" {
			resource = f.Resource
		}
		server := s.Issuer()
		if f.Server != "" {
			server = f.Server
		}
		answer(w, 200, map[string]any{"resource": resource, "authorization_servers": []string{server}, "scopes_supported": []string{"tickets:read"}})
	case r.URL.Path != "/mcp":
		http.NotFound(w, r)
	case !known || time.Now().After(ends):
		header := "Bearer"
		if !f.NoHeader && !f.NoMetadata && !f.RootOnly {
			header = `Bearer error="invalid_token", resource_metadata="` + s.MCP.URL + name + `/mcp"`
		}
		w.Header().Set("WWW-Authenticate", header)
		w.WriteHeader(http.StatusUnauthorized)
	case f.Wants != "" && calls(r) && !slices.Contains(scopes, f.Wants):
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+f.Wants+`"`)
		w.WriteHeader(http.StatusForbidden)
	default:
		s.mu.Lock()
		s.used = append(s.used, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		s.mu.Unlock()
		s.handler.ServeHTTP(w, r)
	}
}

// calls says whether a request is a tool's call.
func calls(r *http.Request) bool {
	raw, _ := io.ReadAll(r.Body) // what cannot be read is no call
	r.Body = io.NopCloser(bytes.NewReader(raw))
	return bytes.Contains(raw, []byte(`"tools/call"`))
}

// Used lists the access tokens of the requests that were let through since it was last asked, each once.
func (s *Server) Used() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.used)
	s.used = nil
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	if f.Huge {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"issuer":"`)
		for range 1024 {
			if _, err := fmt.Fprint(w, strings.Repeat("a", 4096)); err != nil {
				return
			}
		}
		return
	}
	m := map[string]any{"issuer": s.Issuer(), "authorization_endpoint": s.Auth.URL + "/authorize", "token_endpoint": s.Auth.URL + "/token",
		"revocation_endpoint": s.Auth.URL + "/revoke", "authorization_response_iss_parameter_supported": f.Iss != "-",
		"response_types_supported": []string{"code"}, "token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post", "none"}}
	if !f.NoS256 {
		m["code_challenge_methods_supported"] = []string{"plain", "S256"}
	}
	if !f.NoRegister {
		m["registration_endpoint"] = s.Auth.URL + "/register"
	}
	if f.Issuer != "" {
		m["issuer"] = f.Issuer
	}
	if f.Offline {
		m["scopes_supported"] = []string{"tickets:read", "offline_access"}
	}
	m["client_id_metadata_document_supported"] = f.Documents
	if f.TokenURL != "" {
		m["token_endpoint"] = f.TokenURL
	}
	answer(w, 200, m)
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var in map[string]any
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf("client-%d", len(s.clients))
	s.clients[name] = s.fresh("secret")
	in["client_id"], in["client_secret"], in["client_secret_expires_at"] = name, s.clients[name], 0
	answer(w, http.StatusCreated, in)
}

// authorize is the page on which a member says yes, who says it at once.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	back := url.Values{"state": {q.Get("state")}}
	s.secrets = append(s.secrets, q.Get("state"))
	if iss := s.faults.Iss; iss == "" {
		back.Set("iss", s.Issuer())
	} else if iss != "-" {
		back.Set("iss", iss)
	}
	switch {
	case s.clients[q.Get("client_id")] == "" && !s.documented(q.Get("client_id")) || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "":
		w.WriteHeader(http.StatusBadRequest)
		return
	case q.Get("resource") == "":
		back.Set("error", "invalid_target")
	default:
		code := s.fresh("code")
		s.codes[code] = grant{q.Get("code_challenge"), q.Get("redirect_uri"), q.Get("client_id"), q.Get("resource"), q.Get("scope")}
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	slow, hold := s.faults.Slow, s.faults.Hold
	s.mu.Unlock()
	done := httptest.NewRecorder() // what takes its time is the answer: the token is spent by then
	s.decide(done, r)
	time.Sleep(slow)
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(done.Code)
	_, _ = w.Write(done.Body.Bytes()) // the client is gone if this fails
}

func (s *Server) decide(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := r.PostForm
	s.asked = append(s.asked, f)
	refuse := func(word string) {
		m := map[string]any{"error": word}
		if s.faults.Quote {
			m["error"], m["error_description"] = word, "I do not take "+f.Encode()+" "+r.Header.Get("Authorization")
		}
		answer(w, http.StatusBadRequest, m)
	}
	client, ok := s.client(r)
	if s.faults.Unavailable > 0 {
		s.faults.Unavailable--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if !ok {
		refuse("invalid_client")
		return
	}
	if f.Get("resource") == "" {
		refuse("invalid_target")
		return
	}
	switch f.Get("grant_type") {
	case "authorization_code":
		g, ok := s.codes[f.Get("code")]
		delete(s.codes, f.Get("code"))
		sum := sha256.Sum256([]byte(f.Get("code_verifier")))
		if !ok || g.client != client || g.redirect != f.Get("redirect_uri") || g.resource != f.Get("resource") || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
			refuse("invalid_grant")
			return
		}
		s.secrets = append(s.secrets, f.Get("code_verifier"))
		s.give(w, true, g.scope)
	case "refresh_token":
		unspent, known := s.refresh[f.Get("refresh_token")]
		if known && !unspent {
			s.ended = true
			clear(s.refresh)
			clear(s.access)
		}
		if !unspent || s.faults.Revoked {
			refuse("invalid_grant")
			return
		}
		s.refresh[f.Get("refresh_token")] = false
		s.refreshed++
		s.give(w, true, "")
	case "client_credentials":
		s.refreshed++
		s.give(w, false, "")
	default:
		refuse("unsupported_grant_type")
	}
}

func (s *Server) client(r *http.Request) (string, bool) {
	name, secret, basic := r.BasicAuth()
	if basic {
		name, _ = url.QueryUnescape(name)
		secret, _ = url.QueryUnescape(secret)
	} else {
		name, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	return name, s.clients[name] != "" && s.clients[name] == secret || s.documented(name) && secret == ""
}

// documented says whether a client is known by its document, which is not looked at.
func (s *Server) documented(client string) bool {
	return s.faults.Documents && strings.HasPrefix(client, "https://")
}

func (s *Server) give(w http.ResponseWriter, refresh bool, scope string) {
	if s.faults.ForgetOld {
		clear(s.access)
	}
	m := map[string]any{"access_token": s.fresh("access"), "token_type": "Bearer", "expires_in": int(s.Life.Seconds()), "scope": "tickets:read"}
	if scope != "" && !s.faults.Withhold {
		m["scope"] = scope
	}
	s.scopes[m["access_token"].(string)] = m["scope"].(string)
	s.access[m["access_token"].(string)] = time.Now().Add(s.Life)
	if refresh {
		m["refresh_token"] = s.fresh("refresh")
		s.refresh[m["refresh_token"].(string)] = true
	}
	answer(w, 200, m)
}

func (s *Server) revoke(_ http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.client(r); ok {
		s.revoked = append(s.revoked, r.PostForm.Get("token"))
		delete(s.access, r.PostForm.Get("token"))
		delete(s.refresh, r.PostForm.Get("token"))
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone if this fails
}

// Browse opens a login's URL as a browser would, and gives the query that the browser is sent back with.
func Browse(t testing.TB, at string) url.Values {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	client.CloseIdleConnections()
	back, err := resp.Location()
	if err != nil {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return back.Query()
}
