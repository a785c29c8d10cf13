package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
)

// A browser that comes back from an authorization server is asked first, and only its own page's form goes through.
func TestCallback(t *testing.T) {
	h := start(t)
	query := url.Values{"state": {"tnt_main.con_tickets.secret"}, "code": {`canary"><script>`}, "iss": {"https://auth.example.com"}}
	got := h.browse(t, "/oauth/callback?"+query.Encode())
	if got.status != 200 || !strings.Contains(got.body, "mem_owner") || !strings.Contains(got.body, "mcp.example.com") || strings.Contains(got.body, "<script>") {
		t.Errorf("%+v", got)
	}
	if got.header.Get("Cache-Control") != "no-store" || !strings.Contains(got.header.Get("Content-Security-Policy"), "default-src 'self'") {
		t.Errorf("%v", got.header)
	}
	if _, ok := h.last("login_finish"); ok {
		t.Error("looking at the page finishes the login")
	}
	for _, origin := range []string{"https://evil.example", "null", "", "https://auth.example.com"} {
		if got := h.submit(t, "/oauth/callback", origin, query); got.status != 403 {
			t.Errorf("a form from %q: %d", origin, got.status)
		}
	}
	if _, ok := h.last("login_finish"); ok {
		t.Error("another site's form finishes the login")
	}
	got = h.submit(t, "/oauth/callback", h.base, query)
	asked, ok := h.last("login_finish")
	if got.status != 200 || !ok || !strings.Contains(got.body, "tickets") || strings.Contains(got.body, "canary") {
		t.Errorf("%+v", got)
	}
	if q := asked.body.(ask.FinishLogin); q.State != query.Get("state") || q.Code != query.Get("code") || q.Issuer != query.Get("iss") || asked.who.Tenant != "tnt_main" || asked.who.Role != "" {
		t.Errorf("the broker is asked %+v as %+v", q, asked.who)
	}
	for name, q := range map[string]url.Values{
		"no state":        {"code": {"x"}},
		"no tenant in it": {"state": {"secret"}, "code": {"x"}},
		"every tenant":    {"state": {"tnt_*.con_tickets.secret"}, "code": {"x"}},
		"a used one":      {"state": {"tnt_main.con_tickets.used"}, "code": {"x"}},
		"a long one":      {"state": {"tnt_main." + strings.Repeat("x", 2000)}, "code": {"x"}},
	} {
		if got := h.browse(t, "/oauth/callback?"+q.Encode()); got.status < 400 || got.status >= 500 || !strings.Contains(got.body, "Not possible") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// A no is a page too, and ends the login for whoever waits at the command line.
	no := url.Values{"state": query["state"], "error": {"access_denied"}}
	if got := h.browse(t, "/oauth/callback?"+no.Encode()); got.status != 200 || !strings.Contains(got.body, "Nothing was connected") {
		t.Errorf("%+v", got)
	}
	if got := h.submit(t, "/oauth/callback", h.base, no); got.status != 403 || !strings.Contains(got.body, "access_denied") {
		t.Errorf("%+v", got)
	}
}

func TestLoginsAndRemovalsOfConnections(t *testing.T) {
	h := start(t)
	if got := h.call(t, h.owner, "POST", "/v1/connections/tickets/login", ""); got.status != 404 {
		t.Errorf("%+v", got)
	}
	def := connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: "https://mcp.example.com/mcp", OAuth: connection.OAuth{Flow: connection.AuthorizationCode}}
	broker := eventlog.New(h.bus.Conn(t, string(schemas.Toolbroker)))
	say := func(ev schemas.Event) {
		t.Helper()
		if _, err := broker.Append(t.Context(), eventlog.Draft{Tenant: "tnt_main", Key: "con_tickets", Actor: "mem_owner", Event: ev}); err != nil {
			t.Fatal(err)
		}
	}
	login := func(want connection.Login, reason string) {
		t.Helper()
		buskit.Eventually(t, "the login is "+string(want), func() bool {
			var list struct {
				Connections []struct{ Login *connection.LoginChanged }
			}
			h.call(t, h.owner, "GET", "/v1/connections", "").decode(t, &list)
			return len(list.Connections) == 1 && list.Connections[0].Login.State == want && list.Connections[0].Login.Reason == reason
		})
	}
	say(def)
	login(connection.LoginNeeded, "nobody has logged in yet")
	say(connection.LoginChanged{Connection: "con_tickets", URL: def.URL, OAuth: def.OAuth, State: connection.LoggedIn, By: "mem_owner"})
	login(connection.LoggedIn, "")
	say(connection.LoginChanged{Connection: "con_tickets", URL: def.URL, OAuth: def.OAuth, State: connection.LoginNeeded, Reason: "refused"})
	login(connection.LoginNeeded, "refused")
	say(connection.LoginChanged{Connection: "con_tickets", URL: def.URL, OAuth: def.OAuth, State: connection.LoggedIn, By: "mem_owner"})
	other := def
	other.URL = "https://mcp.example.com/other"
	say(other)
	login(connection.LoginNeeded, "nobody has logged in yet")

	if got := h.call(t, h.owner, "POST", "/v1/connections/tickets/login", ""); got.status != 200 || !strings.Contains(got.body, "lgn_1") {
		t.Errorf("%+v", got)
	}
	if asked, _ := h.last("login_begin"); asked.body != (ask.BeginLogin{Connection: "con_tickets", Redirect: h.base + "/oauth/callback"}) || asked.who.Actor != "mem_owner" {
		t.Errorf("%+v", asked)
	}
	if got := h.call(t, h.owner, "DELETE", "/v1/connections/tickets", ""); got.status != 200 {
		t.Errorf("%+v", got)
	}
	if asked, _ := h.last("connection_define"); !asked.body.(ask.DefineConnection).Connection.Removed || asked.body.(ask.DefineConnection).Connection.URL != other.URL {
		t.Errorf("%+v", asked)
	}
	for _, path := range []string{"POST /v1/connections/tickets/login", "DELETE /v1/connections/tickets"} {
		method, at, _ := strings.Cut(path, " ")
		if got := h.call(t, h.token(t, "tnt_main", "approver", time.Time{}), method, at, ""); got.status != http.StatusForbidden {
			t.Errorf("%s by an approver: %d", path, got.status)
		}
	}
}
