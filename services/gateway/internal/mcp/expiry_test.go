package mcp

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execwarden/execwarden/services/gateway/internal/auth"
)

// A stream ends at the moment when its access token does, and not before; a call without a session goes on.
func TestStreamsExpire(t *testing.T) {
	for name, c := range map[string]struct {
		era, method, sent string
		ends              bool
	}{
		"news of a session":        {sessionTasks, "", http.MethodGet, true},
		"a request of a session":   {sessionTasks, "", http.MethodPost, true},
		"news without a session":   {modern, "subscriptions/listen", http.MethodPost, true},
		"a call without a session": {modern, "tools/call", http.MethodPost, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := httptest.NewRequestWithContext(t.Context(), c.sent, Path, http.NoBody)
				r.Header.Set("Mcp-Protocol-Version", c.era)
				r.Header.Set("Mcp-Method", c.method)
				r, over := expiring(r, isModern(r, nil), auth.Agent{Client: "cli_1", ExpiresAt: time.Now().Add(15 * time.Minute)})
				defer over()
				time.Sleep(15*time.Minute - time.Nanosecond)
				if synctest.Wait(); r.Context().Err() != nil {
					t.Fatal("it ended too early")
				}
				time.Sleep(time.Nanosecond)
				if synctest.Wait(); (r.Context().Err() != nil) != c.ends {
					t.Errorf("it ended: %v", r.Context().Err())
				}
			})
		})
	}
}

// A conversation ends with a token that nothing renews. Of a login or an issuer it waits for the next one.
func TestConversationsExpire(t *testing.T) {
	for name, c := range map[string]struct {
		who  auth.Agent
		ends bool
	}{
		"a token":          {auth.Agent{Token: "tok_1"}, true},
		"a login's":        {auth.Agent{Token: "tok_1", Client: "cli_1"}, false},
		"another issuer's": {auth.Agent{Token: "tok_1", Issuer: "https://login.example.com"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSessions()
				defer s.close()
				c.who.ExpiresAt = time.Now().Add(time.Hour)
				talk := s.begin(c.who, "")
				defer talk.over()
				time.Sleep(time.Hour - time.Nanosecond)
				if synctest.Wait(); talk.ctx.Err() != nil {
					t.Fatal("it ended too early")
				}
				time.Sleep(time.Nanosecond)
				if synctest.Wait(); (talk.ctx.Err() != nil) != c.ends {
					t.Errorf("it ended: %v", talk.ctx.Err())
				}
			})
		})
	}
}
