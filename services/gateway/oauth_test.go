package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/token"
)

const (
	verifier = "0123456789-0123456789-0123456789-0123456789"
	callback = "http://127.0.0.1/callback"
)

// program is a client, with what it would send.
type program struct {
	*house
	id, secret string
	form       url.Values // of its authorization request
}

// challenge is the SHA-256 of a verifier, as PKCE sends it.
func challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// program registers a client, and an external agent for it to act for.
func (h *house) program(t *testing.T) program {
	t.Helper()
	if got := h.call(t, h.owner, "PUT", "/v1/agents/laptop", `{"hosting":"external","body":{"instructions":""}}`); got.status != 200 {
		t.Fatal(got)
	}
	got := h.call(t, h.owner, "PUT", "/v1/clients/editor", `{"name":"Editor","redirects":["`+callback+`","editor-app://login"]}`)
	var made struct {
		ClientID string `json:"client_id"`
	}
	got.decode(t, &made)
	if got.status != 200 || made.ClientID != "tnt_main.cli_editor" {
		t.Fatal(got)
	}
	return h.as(made.ClientID)
}

func (h *house) as(clientID string) program {
	return program{house: h, id: clientID, form: url.Values{"response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {"http://127.0.0.1:45678/callback"}, "state": {"st"},
		"code_challenge": {challenge(verifier)}, "code_challenge_method": {"S256"}, "resource": {h.base + "/mcp"}, "scope": {"mcp offline_access"}}}
}

func with(form url.Values, pairs ...string) url.Values {
	out := url.Values{}
	for k, v := range form {
		out[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			out.Del(pairs[i])
		} else {
			out.Set(pairs[i], pairs[i+1])
		}
	}
	return out
}

// consent has a member say yes, and gives where their browser is sent.
func (p program) consent(t *testing.T, cookie *http.Cookie) url.Values {
	t.Helper()
	got := p.submit(t, "/oauth/authorize", p.base, with(p.form, "agent", "agt_laptop", "decision", "allow"), cookie)
	at, err := url.Parse(got.header.Get("Location"))
	if err != nil || got.status != 303 || !strings.HasPrefix(at.String(), p.form.Get("redirect_uri")+"?") {
		t.Fatalf("%v: %+v", err, got)
	}
	return at.Query()
}

// given is the answer to a token request.
type given struct {
	Access      string `json:"access_token"`
	Refresh     string `json:"refresh_token"`
	Type        string `json:"token_type"`
	Expires     int    `json:"expires_in"`
	Error       string
	Description string `json:"error_description"`
	status      int
}

func (p program) token(t *testing.T, form url.Values) (out given) {
	t.Helper()
	if p.id != "" && !form.Has("client_id") {
		form.Set("client_id", p.id)
	}
	if p.secret != "" {
		form.Set("client_secret", p.secret)
	}
	got := p.submit(t, "/oauth/token", "", form)
	if got.header.Get("Cache-Control") != "no-store" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v", got)
	}
	got.decode(t, &out)
	out.status = got.status
	return out
}

func (p program) exchange(code string) url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {p.form.Get("redirect_uri")}, "code_verifier": {verifier}, "resource": {p.form.Get("resource")}}
}

func (p program) renew(refresh string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}, "resource": {p.form.Get("resource")}}
}

// login is a whole login.
func (p program) login(t *testing.T) given {
	t.Helper()
	got := p.token(t, p.exchange(p.consent(t, p.session(t)).Get("code")))
	if got.status != 200 || !strings.HasPrefix(got.Access, "ewa_") || !strings.HasPrefix(got.Refresh, "ewr_") || got.Type != "Bearer" || got.Expires != 900 {
		t.Fatalf("%+v", got)
	}
	return got
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// mcp sends a message to the endpoint.
func (h *house) mcp(t *testing.T, access, path, session, body string) answer {
	t.Helper()
	return h.send(t, "POST", path, body, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if access != "" {
			r.Header.Set("Authorization", "Bearer "+access)
		}
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
	})
}

// over says that a token opens nothing, however it is tried.
func (h *house) over(t *testing.T, access string) {
	t.Helper()
	if got := h.mcp(t, access, "/mcp", "", hello); got.status != 401 || !strings.Contains(got.header.Get("WWW-Authenticate"), `error="invalid_token"`) {
		t.Errorf("%+v", got)
	}
}

func TestLoginFromZero(t *testing.T) {
	h := start(t)
	p := h.program(t)
	got := p.login(t)
	if got := h.mcp(t, got.Access, "/mcp", "", hello); got.status != 200 || got.header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("%+v", got)
	}
	// What was consented to for one endpoint opens no other, and neither the API.
	if got := h.mcp(t, got.Access, "/mcp/c/tickets", "", hello); got.status != 401 {
		t.Errorf("%+v", got)
	}
	if got := h.call(t, got.Access, "GET", "/v1/whoami", ""); got.status != 401 {
		t.Errorf("%+v", got)
	}
	// The record has who consented, to what, for whom, and no token.
	var issued []token.Issued
	for e, err := range h.log.Read(t.Context(), schemas.Control, "ew.v1.>", 1) {
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{got.Access, got.Refresh, got.Access[4:], got.Refresh[4:47], got.Refresh[47:]} {
			if strings.Contains(string(e.Raw), secret) {
				t.Errorf("a token is in the record: %s", e.Raw)
			}
		}
		if ev, err := e.Envelope.Decode(); err == nil {
			if k, ok := ev.(token.Issued); ok && k.Client != "" {
				issued = append(issued, k)
				if e.Envelope.Actor != "mem_owner" {
					t.Errorf("%s", e.Envelope.Actor)
				}
			}
		}
	}
	if len(issued) != 1 || issued[0].Member != "mem_owner" || issued[0].Agent != "agt_laptop" || issued[0].Client != "cli_editor" || issued[0].Resource != h.base+"/mcp" {
		t.Errorf("%+v", issued)
	}
}

// A client begins with what a 401 says, and every address in it is whole, and names exactly the resource that was asked for.
func TestMetadataURLsAreAbsoluteAndResourceExact_claude_ai_mcp_136_claude_code_58802(t *testing.T) {
	h := start(t)
	for path, resource := range map[string]string{"": h.base, "/mcp": h.base + "/mcp", "/mcp/c/tickets": h.base + "/mcp/c/tickets"} {
		at := "/.well-known/oauth-protected-resource" + path
		if path != "" {
			got := h.mcp(t, "", path, "", hello)
			if want := `resource_metadata="` + h.base + at + `"`; got.status != 401 || !strings.Contains(got.header.Get("WWW-Authenticate"), want) || strings.Contains(got.header.Get("WWW-Authenticate"), "error") {
				t.Errorf("%s: %+v", path, got)
			}
		}
		var doc struct {
			Resource string
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
		}
		got := h.browse(t, at)
		got.decode(t, &doc)
		if got.status != 200 || doc.Resource != resource || len(doc.Servers) != 1 || doc.Servers[0] != h.base || fmt.Sprint(doc.Scopes) != "[mcp]" || got.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %+v", at, got)
		}
	}
	for _, at := range []string{"/.well-known/oauth-protected-resource/other", "/.well-known/oauth-protected-resource/mcp/c/A%2fb", "/.well-known/x"} {
		if got := h.browse(t, at); got.status != 404 || strings.Contains(got.body, "<html") {
			t.Errorf("%s: %+v", at, got)
		}
	}
	for _, at := range []string{"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"} {
		var doc map[string]any
		h.browse(t, at).decode(t, &doc)
		if doc["issuer"] != h.base || fmt.Sprint(doc["code_challenge_methods_supported"]) != "[S256]" || doc["client_id_metadata_document_supported"] != true || doc["authorization_response_iss_parameter_supported"] != true {
			t.Errorf("%s: %v", at, doc)
		}
		for _, end := range []string{"authorization_endpoint", "token_endpoint", "revocation_endpoint"} {
			if u, _ := doc[end].(string); !strings.HasPrefix(u, h.base+"/oauth/") {
				t.Errorf("%s is %s", end, u)
			}
		}
	}
}

func TestConsentPage(t *testing.T) {
	h := start(t)
	p := h.program(t)
	path := "/oauth/authorize?" + p.form.Encode()
	// A browser that comes from the client's site brings no cookie. It is shown a link, and nothing is looked up.
	if got := h.browse(t, path); got.status != 401 || !strings.Contains(got.body, "/oauth/authorize?client_id=tnt_main.cli_editor&amp;") || !strings.Contains(got.body, "execwarden login") {
		t.Errorf("%+v", got)
	}
	cookie := h.session(t)
	got := h.browse(t, path, cookie)
	for _, want := range []string{"Editor", "tnt_main.cli_editor", "127.0.0.1:45678", "laptop", "has no grant", "all tools of the agent", "any program can use this client"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("no %q in %s", want, got.body)
		}
	}
	policy := got.header.Get("Content-Security-Policy")
	if got.header.Get("X-Frame-Options") != "DENY" || !strings.Contains(policy, "frame-ancestors 'none'") || !strings.Contains(policy, "form-action 'self' http://127.0.0.1:45678;") {
		t.Errorf("%v", got.header)
	}
	// No other page, and no program with a token, consents for a member.
	yes := with(p.form, "agent", "agt_laptop", "decision", "allow")
	for _, origin := range []string{"https://evil.example", "null", "", "http://127.0.0.1:45678"} {
		if got := h.submit(t, "/oauth/authorize", origin, yes, cookie); got.status != 403 || got.header.Get("Location") != "" {
			t.Errorf("%q: %+v", origin, got)
		}
	}
	if got := h.submit(t, "/oauth/authorize", h.base, yes); got.status != 401 {
		t.Errorf("%+v", got)
	}
	got = h.send(t, "POST", "/oauth/authorize", yes.Encode(), func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+h.owner)
		r.Header.Set("Origin", h.base)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
	if got.status != 403 {
		t.Errorf("%+v", got)
	}
	// No is an answer too. It says whose it is.
	got = h.submit(t, "/oauth/authorize", h.base, with(p.form, "decision", "deny"), cookie)
	if at, _ := url.Parse(got.header.Get("Location")); got.status != 303 || at.Query().Get("error") != "access_denied" || at.Query().Get("iss") != h.base || at.Query().Get("state") != "st" || at.Query().Has("code") {
		t.Errorf("%+v", got)
	}
	for name, form := range map[string]url.Values{
		"no decision": p.form, "no agent": with(p.form, "decision", "allow"), "an agent that is not there": with(yes, "agent", "agt_other"), "no id": with(yes, "agent", "laptop'"),
	} {
		if got := h.submit(t, "/oauth/authorize", h.base, form, cookie); got.status < 400 || got.status > 404 || got.header.Get("Location") != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// Who may not configure sees why, and cannot.
	h.owner = h.token(t, "tnt_main", member.Approver, time.Time{})
	cookie = h.session(t)
	if got := h.browse(t, path, cookie); got.status != 200 || strings.Contains(got.body, `value="allow"`) || !strings.Contains(got.body, "Ask an owner") {
		t.Errorf("%+v", got)
	}
	if got := h.submit(t, "/oauth/authorize", h.base, yes, cookie); got.status != 403 || got.header.Get("Location") != "" {
		t.Errorf("%+v", got)
	}
}

func TestHostileAuthorizationRequests(t *testing.T) {
	h := start(t)
	p := h.program(t)
	cookie := h.session(t)
	// Of what is wrong about whose it is or where to lead back to, nothing leads anywhere.
	for name, form := range map[string]url.Values{
		"another host":           with(p.form, "redirect_uri", "https://evil.example/callback"),
		"another path":           with(p.form, "redirect_uri", "http://127.0.0.1:45678/callback/../x"),
		"more in the query":      with(p.form, "redirect_uri", "http://127.0.0.1:45678/callback?x=1"),
		"another loopback name":  with(p.form, "redirect_uri", "http://localhost:45678/callback"),
		"a user in it":           with(p.form, "redirect_uri", "http://127.0.0.1@evil.example/callback"),
		"a backslash":            with(p.form, "redirect_uri", `http://127.0.0.1\@evil.example/callback`),
		"a host that looks like": with(p.form, "redirect_uri", "http://127.0.0.1.evil.example/callback"),
		"a fragment":             with(p.form, "redirect_uri", "http://127.0.0.1:45678/callback#x"),
		"https in its place":     with(p.form, "redirect_uri", "https://127.0.0.1:45678/callback"),
		"javascript":             with(p.form, "redirect_uri", "javascript:alert(1)"),
		"none":                   with(p.form, "redirect_uri", ""),
		"a line end":             with(p.form, "redirect_uri", "http://127.0.0.1:45678/callback\r\nX: y"),
		"no client":              with(p.form, "client_id", ""),
		"an unknown client":      with(p.form, "client_id", "tnt_main.cli_other"),
		"another tenant's":       with(p.form, "client_id", "tnt_other.cli_editor"),
		"an http document":       with(p.form, "client_id", "http://127.0.0.1/client.json"),
		"a document inside":      with(p.form, "client_id", "https://127.0.0.1/client.json"),
		"the metadata service":   with(p.form, "client_id", "https://169.254.169.254/latest"),
		"a huge client id":       with(p.form, "client_id", "https://a.example/"+strings.Repeat("x", 4000)),
		"a huge state":           with(p.form, "state", strings.Repeat("x", 4000)),
		"a huge request":         with(p.form, "scope", strings.Repeat("x", 9000)),
		"a script for an id":     with(p.form, "client_id", "<script>alert(1)</script>"),
		"two redirects":          {"client_id": {p.id}, "redirect_uri": {callback, "https://evil.example/"}},
	} {
		for _, got := range []answer{h.browse(t, "/oauth/authorize?"+form.Encode(), cookie), h.submit(t, "/oauth/authorize", h.base, with(form, "agent", "agt_laptop", "decision", "allow"), cookie)} {
			if got.status < 400 || got.status > 502 || got.header.Get("Location") != "" || strings.Contains(got.body, "evil.example\"") || strings.Contains(got.body, "<script>") || strings.Contains(got.body, "iss=") {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	// Of the rest the client is told, by whoever follows the link.
	for name, c := range map[string]struct {
		form  url.Values
		error string
	}{
		"no PKCE":           {with(p.form, "code_challenge", ""), "invalid_request"},
		"plain":             {with(p.form, "code_challenge_method", "plain"), "invalid_request"},
		"no method":         {with(p.form, "code_challenge_method", ""), "invalid_request"},
		"a short challenge": {with(p.form, "code_challenge", "abc"), "invalid_request"},
		"a token at once":   {with(p.form, "response_type", "token"), "unsupported_response_type"},
		"a fragment":        {with(p.form, "response_mode", "fragment"), "invalid_request"},
		"a request object":  {with(p.form, "request_uri", "https://evil.example/x"), "invalid_request"},
		"another scope":     {with(p.form, "scope", "admin"), "invalid_scope"},
		"no resource":       {with(p.form, "resource", ""), "invalid_target"},
		"another's":         {with(p.form, "resource", "https://evil.example/mcp"), "invalid_target"},
		"a look-alike":      {with(p.form, "resource", h.base+"/mcp/"), "invalid_target"},
		"the API":           {with(p.form, "resource", h.base+"/v1"), "invalid_target"},
		"a query":           {with(p.form, "resource", h.base+"/mcp?x"), "invalid_target"},
	} {
		got := h.browse(t, "/oauth/authorize?"+c.form.Encode(), cookie)
		if got.status != 400 || !strings.Contains(got.body, "error="+c.error+"&amp;") || !strings.Contains(got.body, "iss="+url.QueryEscape(h.base)) || got.header.Get("Location") != "" {
			t.Errorf("%s: %+v", name, got)
		}
		if got := h.submit(t, "/oauth/authorize", h.base, with(c.form, "agent", "agt_laptop", "decision", "allow"), cookie); got.header.Get("Location") != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// A program's own scheme is let through to where it was registered.
	own := p
	own.form = with(p.form, "redirect_uri", "editor-app://login")
	if q := own.consent(t, cookie); q.Get("code") == "" || q.Get("iss") != h.base || q.Get("state") != "st" {
		t.Error(q)
	}
}

func TestCodeIsForOneClientOnceWithItsVerifier(t *testing.T) {
	h := start(t)
	p := h.program(t)
	cookie := h.session(t)
	if got := h.call(t, h.owner, "PUT", "/v1/clients/other", `{"redirects":["`+callback+`"]}`); got.status != 200 {
		t.Fatal(got)
	}
	for name, c := range map[string]struct{ key, value, error string }{
		"another client":        {"client_id", "tnt_main.cli_other", "invalid_grant"},
		"another verifier":      {"code_verifier", strings.Repeat("x", 43), "invalid_grant"},
		"no verifier":           {"code_verifier", "", "invalid_grant"},
		"the challenge for it":  {"code_verifier", challenge(verifier), "invalid_grant"},
		"another redirect":      {"redirect_uri", callback, "invalid_grant"},
		"no redirect":           {"redirect_uri", "", "invalid_grant"},
		"another resource":      {"resource", h.base, "invalid_target"},
		"a resource not ours":   {"resource", "https://evil.example/mcp", "invalid_target"},
		"no resource":           {"resource", "", "invalid_target"},
		"a code that is none":   {"code", "ewg_" + strings.Repeat("A", 43), "invalid_grant"},
		"a huge code":           {"code", strings.Repeat("A", 20_000), "invalid_grant"},
		"no code":               {"code", "", "invalid_grant"},
		"an unknown client":     {"client_id", "tnt_main.cli_none", "invalid_client"},
		"a secret it has not":   {"client_secret", "ewc_" + strings.Repeat("A", 43), "invalid_client"},
		"no grant type":         {"grant_type", "", "unsupported_grant_type"},
		"a password":            {"grant_type", "password", "unsupported_grant_type"},
		"credentials in public": {"grant_type", "client_credentials", "unauthorized_client"},
	} {
		form := with(with(p.exchange(p.consent(t, cookie).Get("code")), "client_id", p.id), c.key, c.value)
		if got := p.token(t, form); got.Error != c.error || got.Access != "" || got.status != map[bool]int{true: 401, false: 400}[c.error == "invalid_client"] {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// Whatever was wrong with the first try, there is no second one.
	form := with(p.exchange(p.consent(t, cookie).Get("code")), "code_verifier", strings.Repeat("x", 43))
	p.token(t, form)
	if got := p.token(t, with(form, "code_verifier", verifier)); got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
	for name, c := range map[string]struct {
		path, body, kind string
		want             int
	}{
		"in the URL": {"/oauth/token?code=x", "grant_type=authorization_code", "application/x-www-form-urlencoded", 400},
		"JSON":       {"/oauth/token", "{}", "application/json", 400},
		"huge":       {"/oauth/token", "code=" + strings.Repeat("x", 64<<10), "application/x-www-form-urlencoded", 413},
		"twice":      {"/oauth/token", "client_id=a&client_id=b", "application/x-www-form-urlencoded", 400},
		"no form":    {"/oauth/token", "%zz", "application/x-www-form-urlencoded", 400},
	} {
		got := h.send(t, "POST", c.path, c.body, func(r *http.Request) { r.Header.Set("Content-Type", c.kind) })
		if got.status != c.want || !strings.Contains(got.body, `"error":"invalid_request"`) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestCodeReplayRevokes(t *testing.T) {
	h := start(t)
	p := h.program(t)
	form := p.exchange(p.consent(t, h.session(t)).Get("code"))
	got := p.token(t, form)
	if ok := h.mcp(t, got.Access, "/mcp", "", hello); ok.status != 200 {
		t.Fatalf("%+v", ok)
	}
	if again := p.token(t, form); again.Error != "invalid_grant" || again.Access != "" {
		t.Errorf("%+v", again)
	}
	h.over(t, got.Access)
	if again := p.token(t, p.renew(got.Refresh)); again.Error != "invalid_grant" {
		t.Errorf("%+v", again)
	}
}

func TestRefreshRotatesAndReuseEndsTheLogin(t *testing.T) {
	h := start(t)
	p := h.program(t)
	first := p.login(t)
	// A session goes on with the next access token of its login, and with no other's.
	session := h.mcp(t, first.Access, "/mcp", "", hello).header.Get("Mcp-Session-Id")
	second := p.token(t, p.renew(first.Refresh))
	if second.status != 200 || second.Refresh == first.Refresh || second.Access == first.Access {
		t.Fatalf("%+v", second)
	}
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	if got := h.mcp(t, second.Access, "/mcp", session, ping); got.status != 200 {
		t.Errorf("%+v", got)
	}
	other := p.login(t)
	if got := h.mcp(t, other.Access, "/mcp", session, ping); got.status != 404 {
		t.Errorf("another login's token continues the session: %+v", got)
	}
	for name, c := range map[string]struct{ key, value, error string }{
		"another resource": {"resource", h.base, "invalid_target"},
		"another client":   {"client_id", "https://other.example/client.json", "invalid_grant"},
		"a wider scope":    {"scope", "admin", "invalid_scope"},
		"half of it":       {"refresh_token", second.Refresh[:47], "invalid_grant"},
		"a guess":          {"refresh_token", "ewr_" + strings.Repeat("A", 86), "invalid_grant"},
		"an access token":  {"refresh_token", second.Access, "invalid_grant"},
	} {
		if got := p.token(t, with(with(p.renew(second.Refresh), "client_id", p.id), c.key, c.value)); got.Error != c.error {
			t.Errorf("%s: %+v", name, got)
		}
	}
	third := p.token(t, with(p.renew(second.Refresh), "resource", "")) // none of these used it up
	if third.status != 200 {
		t.Fatalf("%+v", third)
	}
	if got := p.token(t, p.renew(first.Refresh)); got.Error != "invalid_grant" || got.Access != "" {
		t.Errorf("%+v", got)
	}
	for _, k := range []given{first, second, third} {
		h.over(t, k.Access)
	}
	if got := p.token(t, p.renew(third.Refresh)); got.Error != "invalid_grant" {
		t.Errorf("the newest still works: %+v", got)
	}
	if got := h.mcp(t, other.Access, "/mcp", "", hello); got.status != 200 {
		t.Errorf("another login ended too: %+v", got)
	}
}

// Of many that send one refresh token at the same moment, one at most gets the next.
func TestRefreshRace(t *testing.T) {
	h := start(t)
	p := h.program(t)
	first := p.login(t)
	var mu sync.Mutex
	var won []given
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := p.token(t, p.renew(first.Refresh)); got.status == 200 {
				mu.Lock()
				won = append(won, got)
				mu.Unlock()
			} else if got.Error != "invalid_grant" && got.Error != "temporarily_unavailable" {
				t.Errorf("%+v", got)
			}
		})
	}
	all.Wait()
	if len(won) > 1 {
		t.Errorf("%d got a token", len(won))
	}
}

func TestWhatEndsALogin(t *testing.T) {
	h := start(t)
	p := h.program(t)
	for name, end := range map[string]func(given){
		"its token is revoked": func(given) {
			var list struct {
				Tokens []struct {
					Token  id.Token
					Client id.Client
					State  string
				}
			}
			h.call(t, h.owner, "GET", "/v1/tokens", "").decode(t, &list)
			for _, k := range list.Tokens {
				if k.Client == "cli_editor" && k.State == "active" {
					h.call(t, h.owner, "POST", "/v1/tokens/"+string(k.Token)+"/revoke", "")
				}
			}
		},
		"its client is removed":      func(given) { h.call(t, h.owner, "DELETE", "/v1/clients/editor", "") },
		"its agent is removed":       func(given) { h.call(t, h.owner, "DELETE", "/v1/agents/laptop", "") },
		"it logs out with refresh":   func(g given) { p.logout(t, g.Refresh) },
		"it logs out with an access": func(g given) { p.logout(t, g.Access) },
	} {
		p = h.program(t)
		got := p.login(t)
		end(got)
		if again := h.mcp(t, got.Access, "/mcp", "", hello); again.status != 401 {
			t.Errorf("%s: %+v", name, again)
		}
		if again := p.token(t, p.renew(got.Refresh)); again.Error != "invalid_grant" && again.Error != "invalid_client" {
			t.Errorf("%s: %+v", name, again)
		}
		// A client that comes back brings none of its old logins.
		p = h.program(t)
		if again := h.mcp(t, got.Access, "/mcp", "", hello); again.status != 401 && name != "its agent is removed" {
			t.Errorf("%s, and it came back: %+v", name, again)
		}
	}
	// Another client ends nothing, and nobody learns which tokens there are.
	got := p.login(t)
	h.call(t, h.owner, "PUT", "/v1/clients/other", `{"redirects":["`+callback+`"]}`)
	if no := h.submit(t, "/oauth/revoke", "", url.Values{"client_id": {"tnt_main.cli_other"}, "token": {got.Access}}); no.status != 400 {
		t.Errorf("%+v", no)
	}
	if no := h.submit(t, "/oauth/revoke", "", url.Values{"client_id": {"tnt_main.cli_other"}, "token": {"ewr_" + strings.Repeat("A", 86)}}); no.status != 200 {
		t.Errorf("%+v", no)
	}
	if ok := h.mcp(t, got.Access, "/mcp", "", hello); ok.status != 200 {
		t.Errorf("%+v", ok)
	}
}

func (p program) logout(t *testing.T, secret string) {
	t.Helper()
	if got := p.submit(t, "/oauth/revoke", "", url.Values{"client_id": {p.id}, "token": {secret}}); got.status != 200 {
		t.Errorf("%+v", got)
	}
}

func TestAgentsOwnClient(t *testing.T) {
	h := start(t)
	h.program(t)
	var own struct {
		ClientID string `json:"client_id"`
		Secret   string
	}
	register := func() {
		t.Helper()
		got := h.call(t, h.owner, "PUT", "/v1/clients/robot", `{"agent":"laptop"}`)
		got.decode(t, &own)
		if got.status != 200 || !strings.HasPrefix(own.Secret, "ewc_") {
			t.Fatal(got)
		}
	}
	register()
	p := h.as(own.ClientID)
	p.secret = own.Secret
	form := func() url.Values {
		return url.Values{"grant_type": {"client_credentials"}, "resource": {h.base + "/mcp"}}
	}
	got := p.token(t, form())
	if got.status != 200 || got.Refresh != "" {
		t.Fatalf("%+v", got)
	}
	if ok := h.mcp(t, got.Access, "/mcp", "", hello); ok.status != 200 {
		t.Errorf("%+v", ok)
	}
	if list := h.call(t, h.owner, "GET", "/v1/clients", ""); !strings.Contains(list.body, `"client_id":"tnt_main.cli_robot"`) || strings.Contains(list.body, own.Secret) {
		t.Error(list)
	}
	again := p.token(t, form())
	// The header takes the place of the body, in its own spelling.
	basic := h.send(t, "POST", "/oauth/token", form().Encode(), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth(url.QueryEscape(own.ClientID), url.QueryEscape(own.Secret))
	})
	if again.status != 200 || basic.status != 200 {
		t.Errorf("%+v, %+v", again, basic)
	}
	// Logging out ends one access token, and not the client.
	if out := h.submit(t, "/oauth/revoke", "", url.Values{"client_id": {own.ClientID}, "client_secret": {own.Secret}, "token": {again.Access}}); out.status != 200 {
		t.Errorf("%+v", out)
	}
	h.over(t, again.Access)
	if ok := h.mcp(t, got.Access, "/mcp", "", hello); ok.status != 200 {
		t.Errorf("%+v", ok)
	}
	for name, c := range map[string]struct{ key, value, error string }{
		"no resource":      {"resource", "", "invalid_target"},
		"another resource": {"resource", "https://evil.example/mcp", "invalid_target"},
		"a scope":          {"scope", "admin", "invalid_scope"},
	} {
		if got := p.token(t, with(form(), c.key, c.value)); got.Error != c.error {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, secret := range []string{"ewc_" + strings.Repeat("A", 43), "x", strings.Repeat("x", 20_000)} {
		wrong := p
		wrong.secret = secret
		if got := wrong.token(t, form()); got.Error != "invalid_client" || got.status != 401 {
			t.Errorf("%+v", got)
		}
	}
	old := p
	register() // a new secret ends the old one
	if got := old.token(t, form()); got.Error != "invalid_client" {
		t.Errorf("%+v", got)
	}
	p.secret = own.Secret
	got = p.token(t, form())
	if out := h.call(t, h.owner, "DELETE", "/v1/clients/robot", ""); out.status != 200 || !strings.Contains(out.body, "confirmed_ms") {
		t.Error(out)
	}
	h.over(t, got.Access)
	if got := p.token(t, form()); got.Error != "invalid_client" {
		t.Errorf("%+v", got)
	}
	for body, want := range map[string]int{
		`{"agent":"nobody"}`: 404, `{}`: 400, `{"redirects":["https://x.example/#f"]}`: 400, `{"redirects":["http://x.example/"]}`: 400,
		`{"redirects":["javascript:alert(1)"]}`: 400, `{"redirects":["https://*.example/"]}`: 400, `{"name":"a\u202eb","redirects":["https://x.example/"]}`: 400,
		`{"agent":"laptop","redirects":["https://x.example/"]}`: 400, `{"redirects":["https://x.example;script-src/"]}`: 400,
	} {
		if got := h.call(t, h.owner, "PUT", "/v1/clients/bad", body); got.status != want {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if got := h.call(t, h.token(t, "tnt_main", "approver", time.Time{}), "PUT", "/v1/clients/robot", `{"agent":"laptop"}`); got.status != 403 {
		t.Error(got)
	}
}

// A client that nobody registered is known by its document, which is fetched for members only.
func TestClientWithMetadataDocument(t *testing.T) {
	t.Parallel()
	b := buskit.Start(t)
	h := &house{bus: b, peersFake: newPeers(t, b)}
	var asked sync.Map
	site := httptest.NewUnstartedServer(nil)
	site.StartTLS()
	t.Cleanup(site.Close)
	clientID := site.URL + "/client.json"
	doc := map[string]any{"client_id": clientID, "client_name": "<b>Editor</b>", "redirect_uris": []string{callback}, "grant_types": []string{"authorization_code", "refresh_token"}}
	site.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path, true)
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/client.json":
			_ = json.NewEncoder(w).Encode(doc)
		case "/other.json":
			_ = json.NewEncoder(w).Encode(doc)
		case "/moved.json":
			http.Redirect(w, r, "/client.json", http.StatusFound)
		case "/large.json":
			_, _ = w.Write([]byte(`{"client_id":"` + strings.Repeat("x", 64<<10)))
		case "/page.json":
			w.Header().Set("Content-Type", "text/html")
		case "/secret.json":
			_ = json.NewEncoder(w).Encode(map[string]any{"client_id": site.URL + r.URL.Path, "client_name": "x", "redirect_uris": []string{callback}, "token_endpoint_auth_method": "client_secret_basic"})
		case "/scheme.json":
			_ = json.NewEncoder(w).Encode(map[string]any{"client_id": site.URL + r.URL.Path, "client_name": "x", "redirect_uris": []string{"editor-app://login"}})
		default:
			w.WriteHeader(404)
		}
	})
	pool := site.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	h.documents.RootCAs = pool
	h.run(t, Config{Listen: "127.0.0.1:0", MaxTails: 30, MCPCalls: 64, MCPRate: 50, MCPBurst: 100, MCPSessions: 2000, MCPHeldWait: time.Second, ClientPrivate: site.Listener.Addr().String(), OwnerTokenFile: filepath.Join(t.TempDir(), "owner.token")})
	h.program(t)
	p := h.as(clientID)
	if got := h.browse(t, "/oauth/authorize?"+p.form.Encode()); got.status != 401 {
		t.Errorf("%+v", got)
	}
	if _, fetched := asked.Load("/client.json"); fetched {
		t.Error("it is fetched for nobody")
	}
	cookie := h.session(t)
	page := h.browse(t, "/oauth/authorize?"+p.form.Encode(), cookie)
	if page.status != 200 || !strings.Contains(page.body, "&lt;b&gt;Editor") || strings.Contains(page.body, "<b>") {
		t.Fatalf("%+v", page)
	}
	got := p.login(t)
	if ok := h.mcp(t, got.Access, "/mcp", "", hello); ok.status != 200 {
		t.Errorf("%+v", ok)
	}
	var list struct {
		Clients []struct {
			Client   id.Client
			ClientID string `json:"client_id"`
		}
	}
	h.call(t, h.owner, "GET", "/v1/clients", "").decode(t, &list)
	for _, c := range list.Clients {
		if c.ClientID == clientID {
			if out := h.call(t, h.owner, "DELETE", "/v1/clients/"+string(c.Client), ""); out.status != 200 {
				t.Error(out)
			}
		}
	}
	h.over(t, got.Access)
	// A member may let it in again; what it had before stays over.
	new := p.login(t)
	if ok := h.mcp(t, new.Access, "/mcp", "", hello); ok.status != 200 {
		t.Errorf("%+v", ok)
	}
	h.over(t, got.Access)
	for _, bad := range []string{"/other.json", "/moved.json", "/large.json", "/page.json", "/secret.json", "/scheme.json", "/none.json", "/", "", "/a/../client.json", "/client.json?x=1", "/client.json#x"} {
		form := with(p.form, "client_id", site.URL+bad)
		if got := h.browse(t, "/oauth/authorize?"+form.Encode(), cookie); got.status < 400 || strings.Contains(got.body, `value="allow"`) {
			t.Errorf("%s: %+v", bad, got)
		}
	}
}

// connect makes a connection known.
func (h *house) connect(t *testing.T) {
	t.Helper()
	broker := eventlog.New(h.bus.Conn(t, string(schemas.Toolbroker)))
	if _, err := broker.Append(t.Context(), eventlog.Draft{Tenant: "tnt_main", Key: "con_tickets", Actor: "mem_owner",
		Event: connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: "https://mcp.example.com/mcp"}}); err != nil {
		t.Fatal(err)
	}
	buskit.Eventually(t, "the connection is known", func() bool {
		return strings.Contains(h.call(t, h.owner, "GET", "/v1/connections", "").body, "con_tickets")
	})
}

// What one instance gives another takes, and what ends at one ends at the other when it is answered.
func TestLoginHoldsOnEveryInstance(t *testing.T) {
	h := start(t)
	p := h.program(t)
	other := &house{bus: h.bus, peersFake: h.peersFake}
	other.run(t, Config{Listen: "127.0.0.1:0", PublicURL: h.base, MaxTails: 30, MCPCalls: 64, MCPRate: 50, MCPBurst: 100, MCPSessions: 2000, MCPHeldWait: time.Second,
		OwnerTokenFile: h.tokenFile})
	q := p
	q.house = other
	code := p.consent(t, h.session(t)).Get("code")
	first := q.token(t, p.exchange(code))
	if first.status != 200 {
		t.Fatalf("%+v", first)
	}
	for _, at := range []*house{h, other} {
		if got := at.mcp(t, first.Access, "/mcp", "", hello); got.status != 200 {
			t.Errorf("%+v", got)
		}
	}
	second := p.token(t, p.renew(first.Refresh))
	if got := other.mcp(t, second.Access, "/mcp", "", hello); second.status != 200 || got.status != 200 {
		t.Errorf("%+v %+v", second, got)
	}
	if got := q.token(t, p.renew(first.Refresh)); got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
	for _, at := range []*house{h, other} {
		at.over(t, first.Access)
		at.over(t, second.Access)
	}
	third := q.token(t, p.exchange(p.consent(t, h.session(t)).Get("code")))
	if got := h.call(t, h.owner, "DELETE", "/v1/clients/editor", ""); got.status != 200 {
		t.Error(got)
	}
	other.over(t, third.Access)
}

// An open session ends with its login: its stream is closed, not only its next request refused.
func TestSessionEndsWithItsLogin(t *testing.T) {
	h := start(t)
	p := h.program(t)
	got := p.login(t)
	session := h.mcp(t, got.Access, "/mcp", "", hello).header.Get("Mcp-Session-Id")
	if ok := h.mcp(t, got.Access, "/mcp", session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); ok.status != 202 {
		t.Fatalf("%+v", ok)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", h.base+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+got.Access)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Mcp-Session-Id", session)
	stream, err := h.client.Do(r)
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("%v %+v", err, stream)
	}
	defer stream.Body.Close()
	if done := h.call(t, h.owner, "DELETE", "/v1/clients/editor", ""); done.status != 200 {
		t.Fatal(done)
	}
	if _, err := io.ReadAll(stream.Body); err != nil { // it ends; the test's own time is what bounds this
		t.Error(err)
	}
}

// Whoever guesses tokens behind the same proxy shuts no client out that has just renewed its own, and a client whose token has
// ended has not guessed.
func TestOthersFailuresDoNotShutClientsOut(t *testing.T) {
	h := start(t)
	p := h.program(t)
	first := p.login(t)
	for range 40 {
		h.mcp(t, "ewa_"+base64.RawURLEncoding.EncodeToString(sha256.New().Sum(nil)), "/mcp", "", hello)
	}
	if got := h.mcp(t, "ewa_"+strings.Repeat("A", 43), "/mcp", "", hello); got.status != 429 && got.status != 503 {
		t.Errorf("guessing goes on: %+v", got)
	}
	second := p.token(t, p.renew(first.Refresh))
	for _, k := range []given{first, second} {
		if got := h.mcp(t, k.Access, "/mcp", "", hello); got.status != 200 {
			t.Errorf("%+v", got)
		}
	}
}
