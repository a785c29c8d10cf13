package issuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const endpoint = "https://warden.example.com/mcp"

func covers(audience string) bool { return audience == endpoint }

// company is an authorization server of somebody's own.
type company struct {
	*httptest.Server
	mu    sync.Mutex
	set   jose.JSONWebKeySet
	issue string // the issuer in its metadata
	down  bool
	hold  chan struct{} // it answers nothing until this is closed; nil: at once
	asked atomic.Int32
}

type pair struct {
	private any
	public  jose.JSONWebKey
}

func newPair(t *testing.T, kid string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pair{key, jose.JSONWebKey{Key: key.Public(), KeyID: kid, Algorithm: "ES256", Use: "sig"}}
}

func newCompany(t *testing.T, keys ...pair) *company {
	t.Helper()
	c := &company{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		hold := c.hold
		c.mu.Unlock()
		if r.URL.Path == "/keys" {
			c.asked.Add(1)
		}
		if hold != nil {
			<-hold
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case c.down:
			w.WriteHeader(503)
		case r.URL.Path == "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": c.issue, "jwks_uri": c.URL + "/keys"})
		case r.URL.Path == "/keys":
			_ = json.NewEncoder(w).Encode(c.set)
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/keys", http.StatusFound)
		default:
			w.WriteHeader(404)
		}
	}))
	t.Cleanup(c.Close)
	c.issue = c.URL
	c.publish(keys...)
	return c
}

func (c *company) publish(keys ...pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set.Keys = nil
	for _, k := range keys {
		c.set.Keys = append(c.set.Keys, k.public)
	}
}

// issuers takes the tokens of a company.
func (c *company) issuers(t *testing.T, change func(*Issuer)) *Issuers {
	t.Helper()
	one := Issuer{Issuer: c.URL, Agent: `claims.sub.startsWith("agent:") ? claims.sub.substring(6) : ""`, Private: []string{c.Listener.Addr().String()}}
	if change != nil {
		change(&one)
	}
	if err := one.validate(); err != nil {
		t.Fatal(err)
	}
	is := New([]Issuer{one}, egress.Rule{RootCAs: c.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
	t.Cleanup(is.Close)
	return is
}

type claims map[string]any

func (c *company) claims(pairs ...any) claims {
	now := time.Now()
	out := claims{"iss": c.URL, "aud": endpoint, "sub": "agent:nightly", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Minute).Unix(), "client_id": "cron"}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			delete(out, pairs[i].(string))
			continue
		}
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid, typ string, c claims) string {
	t.Helper()
	opts := (&jose.SignerOptions{}).WithType(jose.ContentType(typ))
	if kid != "" {
		opts = opts.WithHeader("kid", kid)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, opts)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(map[string]any(c)).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTokenIsOfTheAgentThatTheRuleNames(t *testing.T) {
	k := newPair(t, "k1")
	c := newCompany(t, k)
	is := c.issuers(t, nil)
	good := sign(t, jose.ES256, k.private, "k1", "at+jwt", c.claims())
	got, err := is.Verify(t.Context(), good, covers)
	if err != nil || got.Agent != "agt_nightly" || got.Tenant != "tnt_main" || got.Issuer != c.URL || !is.Looks(good) || is.Looks("ewa_x") {
		t.Fatalf("%+v %v", got, err)
	}
	// What the issuer renews for the same client is the same in our record; what it gives another is not.
	again, err := is.Verify(t.Context(), sign(t, jose.ES256, k.private, "", "JWT", c.claims("aud", []string{"x", endpoint}, "jti", "2")), covers)
	if err != nil || again.Token != got.Token {
		t.Errorf("%+v %v", again, err)
	}
	other, err := is.Verify(t.Context(), sign(t, jose.ES256, k.private, "k1", "JWT", c.claims("client_id", "other")), covers)
	if err != nil || other.Token == got.Token {
		t.Errorf("%+v %v", other, err)
	}
	if n := c.asked.Load(); n != 1 {
		t.Errorf("keys were fetched %d times", n)
	}
}

func TestHostileTokens(t *testing.T) {
	k, stranger := newPair(t, "k1"), newPair(t, "k1")
	c := newCompany(t, k)
	is := c.issuers(t, nil)
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	es := func(pairs ...any) string {
		return sign(t, jose.ES256, k.private, "k1", "at+jwt", c.claims(pairs...))
	}
	good := es()
	part := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	public, err := json.Marshal(k.public)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"no signature":             none + "." + part[1] + ".",
		"no signature, a kept one": none + "." + part[1] + "." + part[2],
		"a shared secret":          sign(t, jose.HS256, public, "k1", "at+jwt", c.claims()),
		"another's key":            sign(t, jose.ES256, stranger.private, "k1", "at+jwt", c.claims()),
		"an algorithm not agreed":  sign(t, jose.RS512, weak, "k1", "at+jwt", c.claims()),
		"another kind of key":      sign(t, jose.RS256, weak, "k1", "at+jwt", c.claims()),
		"other claims":             part[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"`+c.URL+`","sub":"agent:root"}`)) + "." + part[2],
		"another issuer":           es("iss", "https://evil.example"),
		"the issuer with a slash":  es("iss", c.URL+"/"),
		"no issuer":                es("iss", nil),
		"another audience":         es("aud", "https://warden.example.com/other"),
		"a prefix of the audience": es("aud", "https://warden.example.com/mcp/c/tickets"),
		"no audience":              es("aud", nil),
		"expired":                  es("exp", now.Add(-time.Minute).Unix()),
		"never expires":            es("exp", nil),
		"not yet":                  es("nbf", now.Add(2*time.Minute).Unix()),
		"made tomorrow":            es("iat", now.Add(24*time.Hour).Unix()),
		"no agent by the rule":     es("sub", "user:ada"),
		"no subject":               es("sub", nil),
		"a subject that is none":   es("sub", 7),
		"an id for a name":         es("sub", "agent:../root"),
		"an ID of OpenID":          sign(t, jose.ES256, k.private, "k1", "logout+jwt", c.claims()),
		"huge":                     es("x", strings.Repeat("x", 10<<10)),
		"a key by address":         base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","jku":"https://evil.example/keys"}`)) + "." + part[1] + "." + part[2],
		"what has to be known":     base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"k1","crit":["x"],"x":1}`)) + "." + part[1] + "." + part[2],
		"no token":                 "a.b.c",
		"nothing":                  "..",
	} {
		got, err := is.Verify(t.Context(), text, covers)
		if problem.CodeOf(err) != problem.Unauthenticated || got.Agent != "" {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		if err != nil && len(text) > 100 && strings.Contains(err.Error(), part[1][:20]) {
			t.Errorf("%s: the token is repeated: %v", name, err)
		}
	}
	if _, err := is.Verify(t.Context(), good, covers); err != nil {
		t.Error(err)
	}
	fixed := c.issuers(t, func(i *Issuer) { i.Audience = "warden" })
	if _, err := fixed.Verify(t.Context(), good, covers); problem.CodeOf(err) != problem.Unauthenticated {
		t.Error(err)
	}
	if _, err := fixed.Verify(t.Context(), es("aud", "warden"), covers); err != nil {
		t.Error(err)
	}
}

func TestKeysRotate(t *testing.T) {
	k1, k2 := newPair(t, "k1"), newPair(t, "k2")
	c := newCompany(t, k1)
	is := c.issuers(t, nil)
	now := time.Now()
	is.now = func() time.Time { return now }
	verify := func(k pair) error {
		_, err := is.Verify(t.Context(), sign(t, jose.ES256, k.private, k.public.KeyID, "at+jwt", c.claims("exp", now.Add(time.Minute).Unix())), covers)
		return err
	}
	if err := verify(k1); err != nil {
		t.Fatal(err)
	}
	c.publish(k2)
	// A key that is not known has them fetched again, and not at once after the last time: nobody can make us hammer an issuer.
	if err := verify(k2); problem.CodeOf(err) != problem.Unauthenticated {
		t.Error(err)
	}
	now = now.Add(keysAgain)
	if err := verify(k2); err != nil {
		t.Error(err)
	}
	if err := verify(k1); problem.CodeOf(err) != problem.Unauthenticated {
		t.Errorf("a key that was taken back still opens: %v", err)
	}
	asked := c.asked.Load()
	for range 50 {
		_ = verify(k1)
	}
	if c.asked.Load() != asked {
		t.Errorf("fetched %d times more", c.asked.Load()-asked)
	}
	// While the issuer is away its keys serve on, for a while.
	c.mu.Lock()
	c.down = true
	c.mu.Unlock()
	now = now.Add(keysFresh + time.Second)
	if err := verify(k2); err != nil {
		t.Error(err)
	}
	now = now.Add(keysUsable)
	if err := verify(k2); problem.CodeOf(err) != problem.Unavailable {
		t.Error(err)
	}
	c.mu.Lock()
	c.down = false
	c.mu.Unlock()
	now = now.Add(keysAgain)
	if err := verify(k2); err != nil {
		t.Error(err)
	}
}

// While keys are fetched from an issuer that takes its time, who has a known key goes on, who has not waits for that one fetch, and
// nobody longer than they want to.
func TestSlowIssuer(t *testing.T) {
	k1, k2 := newPair(t, "k1"), newPair(t, "k2")
	c := newCompany(t, k1)
	is := c.issuers(t, func(i *Issuer) { i.JWKS = c.URL + "/keys" })
	var later atomic.Int64
	began := time.Now()
	is.now = func() time.Time { return began.Add(time.Duration(later.Load())) }
	verify := func(ctx context.Context, k pair) error {
		_, err := is.Verify(ctx, sign(t, jose.ES256, k.private, k.public.KeyID, "at+jwt", c.claims("exp", is.now().Add(time.Hour).Unix())), covers)
		return err
	}
	if err := verify(t.Context(), k1); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	c.mu.Lock()
	c.hold = hold
	c.mu.Unlock()
	c.publish(k1, k2)
	later.Store(int64(keysFresh + time.Second))
	asked := c.asked.Load()
	first := make(chan error, 1)
	go func() { first <- verify(t.Context(), k1) }() // finds them old, and waits for new ones
	for c.asked.Load() == asked {
		time.Sleep(time.Millisecond)
	}
	for range 20 {
		if err := verify(t.Context(), k1); err != nil {
			t.Errorf("a known key while keys are fetched: %v", err)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := verify(gone, k2); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("who does not want to wait: %v", err)
	}
	waiting := make(chan error, 20)
	for range cap(waiting) {
		go func() { waiting <- verify(t.Context(), k2) }()
	}
	close(hold)
	for range cap(waiting) {
		if err := <-waiting; err != nil {
			t.Errorf("a new key: %v", err)
		}
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if n := c.asked.Load() - asked; n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

// An end comes in the middle of a fetch.
func TestCloseWhileKeysAreFetched(t *testing.T) {
	k := newPair(t, "k1")
	c := newCompany(t, k)
	hold := make(chan struct{})
	defer close(hold)
	c.hold = hold
	is := c.issuers(t, func(i *Issuer) { i.JWKS = c.URL + "/keys" })
	done := make(chan error, 1)
	go func() {
		_, err := is.Verify(t.Context(), sign(t, jose.ES256, k.private, "k1", "at+jwt", c.claims()), covers)
		done <- err
	}()
	for c.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	is.Close()
	if err := <-done; problem.CodeOf(err) != problem.Unavailable {
		t.Error(err)
	}
}

func TestKeysComeFromTheIssuerAlone(t *testing.T) {
	k := newPair(t, "k1")
	c := newCompany(t, k)
	token := sign(t, jose.ES256, k.private, "k1", "at+jwt", c.claims())
	for name, change := range map[string]func(*Issuer){
		"a redirect":                func(i *Issuer) { i.JWKS = c.URL + "/moved" },
		"nothing there":             func(i *Issuer) { i.JWKS = c.URL + "/none" },
		"a private address":         func(i *Issuer) { i.Private = nil },
		"metadata of somebody else": func(*Issuer) { c.issue = "https://evil.example" },
	} {
		if _, err := c.issuers(t, change).Verify(t.Context(), token, covers); problem.CodeOf(err) != problem.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoad(t *testing.T) {
	load := func(text string) ([]Issuer, error) {
		path := filepath.Join(t.TempDir(), "issuers.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(path)
	}
	list, err := load("issuers:\n  - issuer: https://login.example.com\n    agent: claims.sub\n    advertise: true\n")
	if err != nil || len(list) != 1 || list[0].Tenant != "tnt_main" || Advertised(list)[0] != "https://login.example.com" {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := Load(""); err != nil || list != nil {
		t.Error(list, err)
	}
	for name, text := range map[string]string{
		"http":           "issuers: [{issuer: 'http://login.example.com', agent: claims.sub}]",
		"no agent":       "issuers: [{issuer: 'https://login.example.com'}]",
		"a bad mapping":  "issuers: [{issuer: 'https://login.example.com', agent: 'claims.sub =='}]",
		"none":           "issuers: [{issuer: 'https://login.example.com', agent: claims.sub, algorithms: [none]}]",
		"HS256":          "issuers: [{issuer: 'https://login.example.com', agent: claims.sub, algorithms: [HS256]}]",
		"twice":          "issuers: [{issuer: 'https://login.example.com', agent: claims.sub}, {issuer: 'https://login.example.com', agent: claims.sub}]",
		"an unknown key": "issuers: [{issuer: 'https://login.example.com', agent: claims.sub, skew: 1h}]",
		"a bad tenant":   "issuers: [{issuer: 'https://login.example.com', agent: claims.sub, tenant: main}]",
		"a bad private":  "issuers: [{issuer: 'https://login.example.com', agent: claims.sub, private: [localhost]}]",
		"no YAML":        "issuers: [",
	} {
		if _, err := load(text); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
