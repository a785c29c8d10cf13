package gateway

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// loginCode asks for a link and gives the code in it.
func (h *house) loginCode(t *testing.T) string {
	t.Helper()
	var out struct{ URL string }
	h.call(t, h.owner, "POST", "/v1/logins", "").decode(t, &out)
	u, err := url.Parse(out.URL)
	if err != nil || u.Path != "/login" || !strings.HasPrefix(out.URL, h.base) {
		t.Fatalf("%v: %s", err, out.URL)
	}
	return u.Query().Get("code")
}

// submit posts a form as a browser does from a page of origin.
func (h *house) submit(t *testing.T, path, origin string, form url.Values, cookies ...*http.Cookie) answer {
	t.Helper()
	return h.send(t, "POST", path, form.Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		for _, c := range cookies {
			r.AddCookie(c)
		}
	})
}

func (h *house) browse(t *testing.T, path string, cookies ...*http.Cookie) answer {
	t.Helper()
	return h.send(t, "GET", path, "", func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
	})
}

// session logs in and gives the session's cookie.
func (h *house) session(t *testing.T) *http.Cookie {
	t.Helper()
	got := h.submit(t, "/login", h.base, url.Values{"code": {h.loginCode(t)}})
	cookies := (&http.Response{Header: got.header}).Cookies()
	if got.status != 303 || got.header.Get("Location") != "/" || len(cookies) != 1 {
		t.Fatalf("%+v", got)
	}
	return cookies[0]
}

func TestLoginCodeWorksOnceAndPreviewsDoNotUseIt(t *testing.T) {
	h := start(t)
	code := h.loginCode(t)
	for range 3 {
		if got := h.browse(t, "/login?code="+code); got.status != 200 || !strings.Contains(got.body, code) {
			t.Fatal(got)
		}
	}
	got := h.submit(t, "/login", h.base, url.Values{"code": {code}})
	cookie := got.header.Get("Set-Cookie")
	if got.status != 303 || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") || strings.Contains(cookie, "Secure") {
		t.Fatalf("%+v", got)
	}
	if again := h.submit(t, "/login", h.base, url.Values{"code": {code}}); again.status != 401 || again.header.Get("Set-Cookie") != "" {
		t.Error(again)
	}
	if forged := h.submit(t, "/login", h.base, url.Values{"code": {"x"}}); forged.status != 401 {
		t.Error(forged)
	}
}

func TestSessionIsOneMembersAndEnds(t *testing.T) {
	h := start(t)
	cookie := h.session(t)
	if got := h.browse(t, "/", cookie); got.status != 200 || !strings.Contains(got.body, "mem_owner") {
		t.Fatal(got)
	}
	if got := h.browse(t, "/v1/whoami", cookie); got.status != 200 {
		t.Error(got)
	}
	if got := h.browse(t, "/"); got.status != 401 {
		t.Error(got)
	}
	if got := h.submit(t, "/logout", h.base, nil, cookie); got.status != 200 || !strings.Contains(got.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Error(got)
	}
	if got := h.browse(t, "/", cookie); got.status != 401 {
		t.Error(got)
	}
}

func TestOtherSitesCannotUseASession(t *testing.T) {
	h := start(t)
	h.wait(aWaiting(`{}`))
	cookie := h.session(t)
	decision := url.Values{"digest": {"sha256:5f0c3b"}, "decision": {"approve"}}
	for _, origin := range []string{"https://evil.example", "null", "", "http://127.0.0.1:1", "https://" + strings.TrimPrefix(h.base, "http://")} {
		for _, path := range []string{"/approvals/apr_1/decide", "/runs/run_1/cancel", "/logout", "/login"} {
			if got := h.submit(t, path, origin, decision, cookie); got.status != 403 {
				t.Errorf("%s from %q: %d", path, origin, got.status)
			}
		}
		got := h.send(t, "POST", "/v1/approvals/apr_1/decide", `{"digest":"sha256:5f0c3b","approve":true}`, func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Origin", origin)
			r.AddCookie(cookie)
		})
		if got.status != 403 {
			t.Errorf("the API from %q: %d", origin, got.status)
		}
	}
	crossSite := h.send(t, "POST", "/approvals/apr_1/decide", decision.Encode(), func(r *http.Request) {
		r.Header.Set("Origin", h.base)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.AddCookie(cookie)
	})
	if crossSite.status != 403 {
		t.Error(crossSite)
	}
	rebound := h.send(t, "GET", "/", "", func(r *http.Request) {
		r.Host = "rebound.example"
		r.AddCookie(cookie)
	})
	if rebound.status != 403 {
		t.Error(rebound)
	}
	if _, some := h.last("approval_decide"); some {
		t.Error("another site decided")
	}
}

func TestFailedTokensAreBoundedAndShutNobodyElseOut(t *testing.T) {
	h := start(t)
	if got := h.call(t, h.owner, "GET", "/v1/whoami", ""); got.status != 200 {
		t.Fatal(got)
	}
	for range 30 {
		if got := h.call(t, auth.NewToken().Reveal(), "GET", "/v1/whoami", ""); got.status != 401 {
			t.Fatal(got)
		}
	}
	if got := h.call(t, auth.NewToken().Reveal(), "GET", "/v1/whoami", ""); got.status != 429 {
		t.Error(got)
	}
	if got := h.call(t, h.owner, "GET", "/v1/whoami", ""); got.status != 200 {
		t.Error(got)
	}
}

func TestOwnerTokenSurvivesRestartsAndIsRecordedOnce(t *testing.T) {
	h := start(t)
	path := t.TempDir() + "/owner.token"
	h.stop()
	cfg := Config{Listen: "127.0.0.1:0", MaxTails: 1, MCPCalls: 64, MCPRate: 50, MCPBurst: 100, MCPSessions: 2000, MCPHeldWait: time.Second, OwnerTokenFile: path, PublicURL: "https://warden.example"}
	h.run(t, cfg)
	first := h.owner
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	h.stop()
	count := func() (n int) {
		for e, err := range h.log.Read(t.Context(), schemas.Control, "ew.v1.>", 1) {
			if err != nil || strings.Contains(string(e.Raw), first) {
				t.Fatalf("%v: %s", err, e.Raw)
			}
			n++
		}
		return n
	}
	before := count()
	if before != 4 { // a tenant, a member, and the tokens of two files
		t.Errorf("%d events", before)
	}
	h.run(t, cfg)
	if h.owner != first || count() != before {
		t.Errorf("a restart added something: %d -> %d", before, count())
	}
	if got := h.call(t, h.owner, "GET", "/v1/whoami", ""); got.status != 200 {
		t.Error(got)
	}
	// Behind TLS the cookie is for TLS only.
	var out struct{ URL string }
	h.call(t, h.owner, "POST", "/v1/logins", "").decode(t, &out)
	code, ok := strings.CutPrefix(out.URL, "https://warden.example/login?code=")
	if !ok {
		t.Fatal(out)
	}
	got := h.send(t, "POST", "/login", url.Values{"code": {code}}.Encode(), func(r *http.Request) {
		r.Host = "warden.example"
		r.Header.Set("Origin", "https://warden.example")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
	if c := got.header.Get("Set-Cookie"); got.status != 303 || !strings.HasPrefix(c, "__Host-ew_session=") || !strings.Contains(c, "Secure") {
		t.Error(got)
	}
}

func TestOwnerTokenFileOfOthersIsRefused(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	for name, text := range map[string]string{"readable": auth.NewToken().Reveal(), "no token": "secret"} {
		path := t.TempDir() + "/token"
		mode := map[bool]os.FileMode{true: 0o644, false: 0o600}[name == "readable"]
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		conn := b.Conn(t, string(schemas.Gateway))
		people, err := auth.OpenPeople(t.Context(), conn, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := people.EnsureOwner(t.Context(), path); err == nil || strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
