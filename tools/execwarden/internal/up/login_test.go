package up

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/oauthkit"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
)

// login connects an MCP server behind an authorization server, lets logins go well and badly, and removes the connection
// again.
func (w *world) login() *oauthkit.Server {
	w.t.Helper()
	ctx, server := w.t.Context(), oauthkit.Start(w.t)
	def := connection.Defined{Connection: "con_guarded", Type: connection.MCP, URL: server.URL(), Private: server.Private(), OAuth: connection.OAuth{Flow: connection.AuthorizationCode}}
	if err := w.PutConnection(ctx, def, ""); err != nil {
		w.t.Fatal(err)
	}
	for _, change := range []func(url.Values){
		func(v url.Values) { v.Set("code", "code-canary-guessed") },
		func(v url.Values) { v.Set("iss", "https://evil.example") },
		func(url.Values) {},
	} {
		begun, err := w.BeginLogin(ctx, "guarded", "")
		if err != nil {
			w.t.Fatal(err)
		}
		back := oauthkit.Browse(w.t, begun.URL)
		change(back)
		resp, err := http.Get(w.endpoints.API + "/oauth/callback?" + back.Encode())
		if err != nil {
			w.t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			w.t.Fatalf("the page is %s", resp.Status)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.endpoints.API+"/oauth/callback", strings.NewReader(back.Encode()))
		if err != nil {
			w.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", w.endpoints.API)
		if resp, err = http.DefaultClient.Do(req); err != nil {
			w.t.Fatal(err)
		}
		resp.Body.Close()
	}
	w.await("guarded", func(c client.Connection) bool {
		return c.Login.State == connection.LoggedIn && len(c.Tools) == 1 && c.Login.By == "mem_owner"
	})
	server.Change(oauthkit.Faults{Quote: true, Revoked: true})
	server.Expire()
	if err := w.PutConnection(ctx, changed(def), ""); err != nil { // it is listed again
		w.t.Fatal(err)
	}
	w.await("guarded", func(c client.Connection) bool { return c.Login.State == connection.LoginNeeded })
	if _, err := w.RemoveConnection(ctx, "guarded"); err != nil {
		w.t.Fatal(err)
	}
	return server
}

func changed(def connection.Defined) connection.Defined { def.Trusted = !def.Trusted; return def }

// await waits until a connection is as it should be.
func (w *world) await(name string, is func(client.Connection) bool) {
	w.t.Helper()
	buskit.Eventually(w.t, "connection "+name, func() bool {
		all, err := w.Connections(w.t.Context())
		if err != nil {
			return false
		}
		for _, c := range all {
			if string(c.Connection) == "con_"+name {
				return is(c)
			}
		}
		return false
	})
}

// A login begins at the API, goes on in a browser and ends in the broker; the connection's tools are there then.
func TestLoginInABrowser(t *testing.T) {
	w := newWorld(t)
	server := w.login()
	buskit.Eventually(t, "the tokens are revoked", func() bool {
		all, err := w.Connections(t.Context())
		return err == nil && len(all) == 0
	})
	if n, twice := server.Refreshed(); n != 0 || twice {
		t.Errorf("renewed %d times, twice with one token: %v", n, twice)
	}
}
