package oauth_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
	"github.com/execwarden/execwarden/services/toolbroker/oauthkit"
)

// asks are the scopes that the next login asks for.
func (h *house) asks() string {
	h.t.Helper()
	at, err := url.Parse(h.begin().URL)
	if err != nil {
		h.t.Fatal(err)
	}
	return at.Query().Get("scope")
}

// A provider that refuses a call for want of scopes has them asked for by the next login, beside what there was.
func TestScopesThatAreWantedBesides(t *testing.T) {
	h := start(t)
	h.login()
	p := h.provider(0)
	h.mustCall(p)
	h.server.Change(oauthkit.Faults{Wants: "tickets:write"})
	err := echo(t.Context(), p)
	if problem.CodeOf(err) != problem.Unauthenticated || !strings.Contains(err.Error(), "tickets:write") || !strings.Contains(err.Error(), "execwarden connections login tickets") || upstream.Ambiguous(err) {
		t.Errorf("%v", err)
	}
	if ev := h.last(); ev.State != connection.LoggedIn || !strings.Contains(ev.Reason, "tickets:write") || ev.Failed {
		t.Errorf("%+v", ev)
	}
	if _, err := p.Tools(t.Context()); err != nil {
		t.Errorf("what takes no more than before: %v", err)
	}
	if got := h.asks(); got != "tickets:read tickets:write" {
		t.Errorf("the next login asks for %q", got)
	}
	h.login()
	if ev := h.last(); ev.State != connection.LoggedIn || ev.Reason != "" || strings.Join(ev.Scopes, " ") != "tickets:read tickets:write" {
		t.Errorf("%+v", ev)
	}
	h.mustCall(p)
	// What was wanted once is not asked for by every login after.
	h.server.Change(oauthkit.Faults{})
	if got := h.asks(); got != "tickets:read" {
		t.Errorf("a login after that asks for %q", got)
	}
}

// Nobody is sent to log in for what a login did not bring, or for what the connection is not to have.
func TestScopesThatNoLoginBrings(t *testing.T) {
	h := start(t)
	h.login()
	p := h.provider(0)
	h.server.Change(oauthkit.Faults{Wants: "tickets:write", Withhold: true})
	for _, want := range []problem.Code{problem.Unauthenticated, problem.Denied} {
		err := echo(t.Context(), p)
		if problem.CodeOf(err) != want || strings.Contains(err.Error(), "connections login") != (want == problem.Unauthenticated) || upstream.Ambiguous(err) {
			t.Errorf("%v, want %s", err, want)
		}
		h.login()
	}
	h.conn.OAuth.Scopes = []string{"tickets:read"}
	h.login()
	if err := echo(t.Context(), h.provider(0)); problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "oauth.scopes") {
		t.Errorf("%v", err)
	}
	if got := h.asks(); got != "tickets:read" {
		t.Errorf("the connection lists its scopes, and a login asks for %q", got)
	}
}

// What a provider says that it wants is bounded, and in requests and messages is nothing but scopes.
func TestHostileScopes(t *testing.T) {
	h := start(t)
	h.login()
	p := h.provider(0)
	var many []string
	for range 200 {
		many = append(many, "s"+strings.Repeat("x", len(many)))
	}
	h.server.Change(oauthkit.Faults{Wants: strings.Join(many, " ")})
	if err := echo(t.Context(), p); problem.CodeOf(err) != problem.Unauthenticated || len(err.Error()) > 2000 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
	told := len(h.told)
	h.server.Change(oauthkit.Faults{Wants: "another"})
	for range 3 {
		if err := echo(t.Context(), p); problem.CodeOf(err) != problem.Unauthenticated || strings.Contains(err.Error(), "another") {
			t.Errorf("over the bound: %v", err)
		}
	}
	if got := strings.Fields(h.asks()); len(got) != 21 || h.told[told].Reason != h.told[len(h.told)-1].Reason {
		t.Errorf("a login asks for %d scopes", len(got))
	}
	h.login()
	h.server.Change(oauthkit.Faults{Wants: "<b>é"})
	if err := echo(t.Context(), p); problem.CodeOf(err) != problem.Denied || strings.Contains(err.Error(), "é") {
		t.Errorf("%v", err)
	}
}

// A refresh token is asked for where there is a scope for that, and only there.
func TestOfflineAccess(t *testing.T) {
	h := start(t)
	if got := h.asks(); got != "tickets:read" {
		t.Errorf("%q", got)
	}
	h.server.Change(oauthkit.Faults{Offline: true})
	if got := h.asks(); got != "tickets:read offline_access" {
		t.Errorf("%q", got)
	}
	h.conn.OAuth.Scopes = []string{"tickets:write"}
	if got := h.asks(); got != "tickets:write" {
		t.Errorf("the connection lists its scopes, and a login asks for %q", got)
	}
}

// A server that registers nobody may know this site by its metadata document; one that registers does that.
func TestClientByItsDocument(t *testing.T) {
	const document = "https://warden.example.com/oauth/client.json"
	h := start(t)
	h.server.Change(oauthkit.Faults{Documents: true, NoRegister: true})
	if _, err := h.clients[0].Begin(t.Context(), h.conn, "mem_owner", redirect, ""); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("without a document: %v", err)
	}
	begun, err := h.clients[0].Begin(t.Context(), h.conn, "mem_owner", redirect, document)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := url.Parse(begun.URL); err != nil || at.Query().Get("client_id") != document {
		t.Errorf("the login is at %s", begun.URL)
	}
	if err := h.clients[0].Finish(t.Context(), h.conn, finish(oauthkit.Browse(t, begun.URL))); err != nil {
		t.Fatal(err)
	}
	h.mustCall(h.provider(0))
	h.server.Expire()
	h.mustCall(h.provider(1)) // renewed by the same client
	h.conn.Connection = "con_other"
	h.server.Change(oauthkit.Faults{Documents: true})
	if begun, err = h.clients[0].Begin(t.Context(), h.conn, "mem_owner", redirect, document); err != nil || strings.Contains(begun.URL, "client.json") {
		t.Errorf("%s, %v", begun.URL, err)
	}
}

// localhost is an address of this machine, listed by its number; what is not listed is not reached by it either.
func TestLocalhost(t *testing.T) {
	h := start(t)
	h.server.Change(oauthkit.Faults{TokenURL: strings.Replace(h.server.Auth.URL, "127.0.0.1", "localhost", 1) + "/token"})
	h.login()
	h.mustCall(h.provider(0))
	h.server.Change(oauthkit.Faults{TokenURL: "http://localhost:1/token"})
	if _, err := h.clients[0].Begin(t.Context(), h.conn, "mem_owner", redirect, ""); problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "private") {
		t.Errorf("%v", err)
	}
}
