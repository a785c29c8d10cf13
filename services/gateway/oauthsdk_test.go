package gateway

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// The official SDK's client, which knows the address of the endpoint and its own client id, finds the rest by itself.
func TestSDKClientLogsInFromZero(t *testing.T) {
	h := start(t)
	p := h.program(t)
	cookie := h.session(t)
	for _, path := range []string{"/mcp", "/mcp/c/tickets"} {
		if path != "/mcp" {
			h.connect(t)
		}
		asked := 0
		handler, err := sdkauth.NewAuthorizationCodeHandler(&sdkauth.AuthorizationCodeHandlerConfig{
			PreregisteredClient: &oauthex.ClientCredentials{ClientID: p.id}, RedirectURL: "http://127.0.0.1:45678/callback", RequestRefreshToken: true, Client: h.client,
			AuthorizationCodeFetcher: func(_ context.Context, args *sdkauth.AuthorizationArgs) (*sdkauth.AuthorizationResult, error) {
				asked++
				at, err := url.Parse(args.URL)
				if err != nil {
					return nil, err
				}
				if got := h.browse(t, at.RequestURI(), cookie); got.status != http.StatusOK {
					t.Errorf("%+v", got)
				}
				form := with(at.Query(), "agent", "agt_laptop", "decision", "allow")
				back, err := url.Parse(h.submit(t, at.Path, h.base, form, cookie).header.Get("Location"))
				if err != nil {
					return nil, err
				}
				q := back.Query()
				return &sdkauth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: h.base + path, HTTPClient: h.client, OAuthHandler: handler, DisableStandaloneSSE: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		if asked != 1 {
			t.Errorf("a person was asked %d times", asked)
		}
	}
}
