package github_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/services/toolbroker/internal/github"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// appKey is one key for all tests: making one takes its time.
var appKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func pemOf(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// apps is a GitHub that knows one App, 12, installed on acme as installation.
type apps struct {
	*httptest.Server
	t *testing.T

	mu           sync.Mutex
	installation int64
	suspended    bool
	ahead        time.Duration // of GitHub's clock
	life         time.Duration
	count        int
	valid        map[string]string // tokens and what they are for
	minted       []string          // the bodies of the requests for tokens
	revoked      []string
	asked        []string
	answer       http.HandlerFunc
	minting      func() // called before a token is made
}

func startApps(t *testing.T) *apps {
	a := &apps{t: t, installation: 100, life: time.Hour, valid: map[string]string{}, answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"id":42,"number":7}`) }}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /app", a.asApp(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":12,"slug":"warden","name":"Warden","owner":{"login":"acme"}}`)
	}))
	mux.HandleFunc("GET /repos/{owner}/{repo}/installation", a.asApp(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("owner") != "acme" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, `{"id":%d}`, a.installation)
	}))
	mux.HandleFunc("POST /app/installations/{id}/access_tokens", func(w http.ResponseWriter, r *http.Request) {
		if a.minting != nil {
			a.minting()
		}
		a.asApp(a.mint)(w, r)
	})
	mux.HandleFunc("DELETE /installation/token", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		a.revoked = append(a.revoked, token)
		delete(a.valid, token)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.asked = append(a.asked, r.Method+" "+r.URL.Path)
		_, ok := a.valid[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		a.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"message":"Bad credentials"}`)
			return
		}
		a.answer(w, r)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// asApp lets pass who speaks as the App, by GitHub's own clock.
func (a *apps) asApp(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		now := time.Now().Add(a.ahead)
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		parts := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
		var claims struct {
			Issued, Expires int64
			Issuer          string
		}
		if len(parts) == 3 {
			raw, _ := base64.RawURLEncoding.DecodeString(parts[1])
			var c struct {
				Issued  int64  `json:"iat"`
				Expires int64  `json:"exp"`
				Issuer  string `json:"iss"`
			}
			_ = json.Unmarshal(raw, &c)
			claims.Issued, claims.Expires, claims.Issuer = c.Issued, c.Expires, c.Issuer
			sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
			signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
			if rsa.VerifyPKCS1v15(&appKey().PublicKey, crypto.SHA256, sum[:], signature) != nil {
				claims.Issuer = ""
			}
		}
		if claims.Issuer != "12" || claims.Issued > now.Unix() || claims.Expires <= now.Unix() || claims.Expires > now.Add(10*time.Minute).Unix() {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"message":"'Expiration time' claim ('exp') is too far in the future"}`)
			return
		}
		next(w, r)
	}
}

func (a *apps) mint(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Repositories []string          `json:"repositories"`
		Permissions  map[string]string `json:"permissions"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Repositories) != 1 || len(body.Permissions) == 0 {
		a.t.Errorf("a token for everything was asked for: %+v, %v", body, err)
	}
	switch {
	case r.PathValue("id") != fmt.Sprint(a.installation):
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"Not Found"}`)
	case a.suspended:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"message":"This installation has been suspended"}`)
	case body.Permissions["checks"] != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"message":"The permissions requested are not granted to this installation."}`)
	default:
		a.count++
		token := fmt.Sprintf("ghs_canary_%d", a.count)
		a.valid[token] = body.Repositories[0]
		a.minted = append(a.minted, fmt.Sprint(body.Repositories, body.Permissions))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token":%q,"expires_at":%q}`, token, time.Now().Add(a.ahead+a.life).UTC().Format(time.RFC3339))
	}
}

func (a *apps) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// provider makes a connection of the App.
func (a *apps) provider(installation string) *github.Provider {
	a.t.Helper()
	raw, err := json.Marshal(struct {
		AppID          int    `json:"app_id"`
		PrivateKey     string `json:"private_key"`
		InstallationID string `json:"installation_id,omitempty"`
	}{12, pemOf(appKey()), installation})
	if err != nil {
		a.t.Fatal(err)
	}
	transport := &http.Transport{}
	a.t.Cleanup(transport.CloseIdleConnections)
	return provider(a.t, github.Config{URL: a.URL, Transport: transport, Credential: func(context.Context) (vault.Secret, error) { return vault.NewSecret(string(raw)), nil }})
}

// wants makes a call and compares the error in its result, "" for none. It looks for tokens and keys in it.
func wants(t *testing.T, p *github.Provider, tool, args, problem string) {
	t.Helper()
	got, err := call(t.Context(), p, tool, args)
	text := string(got.Content) + fmt.Sprint(err)
	if problem == "" && (err != nil || got.ToolError) || problem != "" && !strings.Contains(text, problem) || upstream.Ambiguous(err) {
		t.Errorf("%s: %s, want %q", tool, text, problem)
	}
	if strings.Contains(text, "ghs_canary") || strings.Contains(text, "eyJ") || strings.Contains(text, "PRIVATE") {
		t.Errorf("a secret is told: %s", text)
	}
}

// A token is for the call's repository and the tool's permissions, is used for all calls of that sort, and is revoked when
// the connection closes.
func TestAppTokens(t *testing.T) {
	a := startApps(t)
	p := a.provider("")
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { wants(t, p, "issue_read", readIssue, "") })
	}
	wait.Wait()
	wants(t, p, "add_issue_comment", comment, "")
	wants(t, p, "issue_read", strings.ReplaceAll(readIssue, "shop", "SHOP"), "")
	wants(t, p, "issue_read", strings.ReplaceAll(readIssue, "shop", "other"), "")
	wants(t, p, "issue_read", strings.ReplaceAll(readIssue, "acme", "evil"), "the GitHub App is not installed on evil/shop")
	if want := []string{"[shop] map[issues:read]", "[shop] map[issues:write]", "[other] map[issues:read]"}; !slices.Equal(a.minted, want) {
		t.Errorf("minted %v", a.minted)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	slices.Sort(a.revoked)
	if want := []string{"ghs_canary_1", "ghs_canary_2", "ghs_canary_3"}; !slices.Equal(a.revoked, want) || len(a.valid) != 0 {
		t.Errorf("revoked %v, still valid %v", a.revoked, a.valid)
	}
	wants(t, p, "issue_read", readIssue, "closed")
}

// Tokens that are given up are revoked, and the next call gets one of its own.
func TestRenounced(t *testing.T) {
	a := startApps(t)
	p := a.provider("")
	p.Renounce() // nothing yet
	wants(t, p, "issue_read", readIssue, "")
	wants(t, p, "add_issue_comment", comment, "")
	p.Renounce()
	slices.Sort(a.revoked)
	if want := []string{"ghs_canary_1", "ghs_canary_2"}; !slices.Equal(a.revoked, want) || len(a.valid) != 0 {
		t.Errorf("revoked %v, still valid %v", a.revoked, a.valid)
	}
	wants(t, p, "issue_read", readIssue, "")
	// One that is asked for while others are given up is given up too, and asked for again.
	var during sync.Once
	a.minting = func() { during.Do(p.Renounce) }
	wants(t, p, "issue_read", strings.ReplaceAll(readIssue, "shop", "other"), "")
	a.mu.Lock()
	defer a.mu.Unlock()
	if want := []string{"ghs_canary_1", "ghs_canary_2", "ghs_canary_3", "ghs_canary_4"}; !slices.Equal(a.revoked, want) || len(a.valid) != 1 {
		t.Errorf("revoked %v, still valid %v", a.revoked, a.valid)
	}
}

// Tools that are about no repository get no token: one without a list would be for every repository (omitempty).
func testAppWithoutRepository(t *testing.T) {
	a := startApps(t)
	p := a.provider("100")
	wants(t, p, "get_me", `{}`, `"login":"warden[bot]"`)
	wants(t, p, "search_repositories", `{"query":"x"}`, "an App's tokens are for one repository")
	wants(t, p, "pull_request_read", `{"method":"get_check_runs","owner":"acme","repo":"shop","pullNumber":7}`, "give its installation the repository and these permissions")
	if len(a.minted) != 0 || len(a.asked) != 0 {
		t.Errorf("minted %v, asked %v", a.minted, a.asked)
	}
}

// A token that GitHub takes no more is replaced once, also for a write, which had no effect.
func testRevokedToken(t *testing.T) {
	a := startApps(t)
	p := a.provider("")
	defer func() { _ = p.Close() }()
	wants(t, p, "add_issue_comment", comment, "")
	a.set(func() { clear(a.valid) })
	wants(t, p, "add_issue_comment", comment, "")
	if len(a.minted) != 2 || len(a.asked) != 3 {
		t.Errorf("minted %d, asked %v", len(a.minted), a.asked)
	}
	// GitHub takes none at all: it is asked once more, and not for ever.
	a.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	wants(t, p, "add_issue_comment", comment, "GitHub answered 401")
	if len(a.asked) != 5 {
		t.Errorf("asked %d times", len(a.asked))
	}
}

func TestSuspendedInstallation(t *testing.T) {
	a := startApps(t)
	p := a.provider("")
	defer func() { _ = p.Close() }()
	wants(t, p, "issue_read", readIssue, "")
	a.set(func() { a.suspended = true; clear(a.valid) })
	wants(t, p, "issue_read", readIssue, "GitHub refused the App: 403 Forbidden: This installation has been suspended")
	wants(t, p, "add_issue_comment", comment, "suspended")
	a.set(func() { a.suspended = false })
	wants(t, p, "issue_read", readIssue, "")
}

// An App that is taken away and installed anew has another installation; it is found again, also when the credential
// names the old one.
func testInstallationIsFoundAgain(t *testing.T) {
	for _, named := range []string{"", "100"} {
		a := startApps(t)
		p := a.provider(named)
		wants(t, p, "issue_read", readIssue, "")
		a.set(func() { a.installation = 200; clear(a.valid) })
		wants(t, p, "issue_read", readIssue, "")
		wants(t, p, "add_issue_comment", comment, "")
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// GitHub's clock counts, for the App's own token and for when an installation's expires.
func TestClockSkew(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, -2 * time.Minute, 30 * time.Second, 20 * time.Minute} {
		a := startApps(t)
		a.ahead = ahead
		p := a.provider("")
		for range 2 {
			wants(t, p, "issue_read", readIssue, "")
		}
		if len(a.minted) != 1 {
			t.Errorf("%s ahead: minted %d times", ahead, len(a.minted))
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A token that is about to expire is not given to a call that might outlive it.
func TestTokenThatExpires(t *testing.T) {
	a := startApps(t)
	a.life = time.Minute
	p := a.provider("")
	defer func() { _ = p.Close() }()
	for range 2 {
		wants(t, p, "issue_read", readIssue, "")
	}
	if len(a.minted) != 2 {
		t.Errorf("minted %d times", len(a.minted))
	}
}

// A caller that gives up does not take the token from the others that wait for it.
func TestTheFirstCallerGivesUp(t *testing.T) {
	a := startApps(t)
	p := a.provider("")
	defer func() { _ = p.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	a.mu.Lock() // GitHub does not answer yet
	var wait sync.WaitGroup
	wait.Go(func() {
		if _, err := call(ctx, p, "issue_read", readIssue); err == nil {
			t.Error("it did not give up")
		}
	})
	wait.Go(func() { wants(t, p, "issue_read", readIssue, "") })
	cancel()
	a.mu.Unlock()
	wait.Wait()
}

// A credential that is none is refused in words that show nothing of it, before anything is asked.
func TestAppCredentials(t *testing.T) {
	key := pemOf(appKey())
	pkcs8, err := x509.MarshalPKCS8PrivateKey(appKey())
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(s string) string { raw, _ := json.Marshal(s); return string(raw) }
	a := startApps(t)
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":              {`{"app_id":12,"private_key":`, "the App's credential is not"},
		"an unknown field":     {`{"app_id":12,"private_key":` + quoted(key) + `,"token":"ghs_canary_x"}`, "the App's credential is not"},
		"no id":                {`{"private_key":` + quoted(key) + `}`, "the App's credential is not"},
		"no key":               {`{"app_id":12,"private_key":"ghs_canary_x"}`, "is not PEM"},
		"a certificate":        {`{"app_id":12,"private_key":"-----BEGIN X-----\nAAAA\n-----END X-----\n"}`, "is not an RSA key"},
		"a bad installation":   {`{"app_id":12,"private_key":` + quoted(key) + `,"installation_id":"../x"}`, "installation_id"},
		"a token of two lines": {"ghs_canary_x\nX-Evil: 1", "neither a token nor an App's JSON"},
		"nothing":              {" ", "neither a token nor an App's JSON"},
		"the other format":     {`{"app_id":"12","installation_id":100,"private_key":` + quoted(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))) + `}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			p := provider(t, github.Config{URL: a.URL, Transport: transport, Credential: func(context.Context) (vault.Secret, error) { return vault.NewSecret(c.text), nil }})
			defer func() { _ = p.Close() }()
			wants(t, p, "issue_read", readIssue, c.want)
		})
	}
}

// An App's own requests follow no redirect, so its token stays at home (go-github#4190).
func testAppRedirects(t *testing.T) {
	var elsewhere []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	a := startApps(t)
	moving := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer moving.Close()
	a.URL = moving.URL
	wants(t, a.provider("100"), "issue_read", readIssue, "307 Temporary Redirect")
	if len(elsewhere) != 0 {
		t.Errorf("another host was shown %v", elsewhere)
	}
}
