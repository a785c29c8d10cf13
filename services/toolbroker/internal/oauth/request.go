package oauth

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/execwarden/execwarden/libs/problem"
)

// identity is how the broker is known to one authorization server.
type identity struct {
	ID      string    `json:"id"`
	Secret  string    `json:"secret,omitempty"` // of a client that was registered by us; a given one's is the connection's credential
	Method  string    `json:"method"`
	Expires time.Time `json:"expires,omitzero"` // of the secret
}

// How a client shows who it is (RFC 7591 section 2).
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
)

// method chooses among what a server supports. One that says nothing means basic (RFC 8414 section 2).
func (s server) method(secret bool) string {
	switch {
	case !secret:
		return methodNone
	case !slices.Contains(s.Methods, methodBasic) && slices.Contains(s.Methods, methodPost):
		return methodPost
	}
	return methodBasic
}

// register makes a client at the authorization server (RFC 7591).
func (c *Client) register(ctx context.Context, conn Connection, s server, redirect string) (identity, error) {
	if s.Register == "" {
		return identity{}, problem.New(problem.Invalid, "the authorization server of connection %s registers no clients by itself; register one there with the redirect URI %s, and give the connection its oauth.client_id", conn.name(), redirect)
	}
	kind := "web"
	if u, err := url.Parse(redirect); err == nil && u.Scheme == "http" {
		kind = "native" // what comes back to this machine
	}
	method := s.method(len(s.Methods) == 0 || slices.Contains(s.Methods, methodBasic) || slices.Contains(s.Methods, methodPost))
	body, err := json.Marshal(oauthex.ClientRegistrationMetadata{
		ClientName: "ExecWarden", RedirectURIs: []string{redirect}, GrantTypes: []string{"authorization_code", "refresh_token"},
		ResponseTypes: []string{"code"}, TokenEndpointAuthMethod: method, ApplicationType: kind, Scope: strings.Join(conn.OAuth.Scopes, " "),
	})
	if err != nil {
		return identity{}, problem.Wrap(err, problem.Internal, "the registration cannot be written")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Register, bytes.NewReader(body))
	if err != nil {
		return identity{}, problem.Wrap(err, problem.Upstream, "the registration endpoint of connection %s is no URL", conn.name())
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	status, _, raw, err := c.do(conn, "registration endpoint", r)
	if err != nil {
		return identity{}, err
	}
	var made oauthex.ClientRegistrationResponse
	if status != http.StatusCreated && status != http.StatusOK {
		return identity{}, problem.New(problem.Upstream, "the authorization server of connection %s does not register a client: status %d; register one there with the redirect URI %s, and give the connection its oauth.client_id", conn.name(), status, redirect)
	}
	if json.Unmarshal(raw, &made) != nil || made.ClientID == "" || len(made.ClientID) > maxToken || len(made.ClientSecret) > maxToken {
		return identity{}, problem.New(problem.Upstream, "the authorization server of connection %s registers a client with an answer that cannot be read", conn.name())
	}
	out := identity{ID: made.ClientID, Secret: made.ClientSecret, Method: made.TokenEndpointAuthMethod, Expires: made.ClientSecretExpiresAt}
	if out.Secret == "" {
		out.Method = methodNone
	} else if out.Method != methodPost {
		out.Method = methodBasic
	}
	return out, nil
}

// tokens is what a token endpoint gives.
type tokens struct {
	access, refresh string
	expires         time.Time // zero: it did not say
	scopes          []string  // nil: as they were asked for
}

// maxToken is the longest token that is kept, in bytes: two, and what is around them, fit into one secret.
const maxToken = 16 << 10

// refusal is an authorization server's no, or ours to ask it. The server's is one of the words that are registered for it:
// what else a server says could hold what we sent.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// words are the errors of RFC 6749 sections 4.1.2.1 and 5.2, RFC 8707, and OpenID Connect Core 3.1.2.6.
var words = []string{
	"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "invalid_target",
	"access_denied", "unsupported_response_type", "server_error", "temporarily_unavailable",
	"interaction_required", "login_required", "account_selection_required", "consent_required",
}

func word(said string) string {
	if slices.Contains(words, said) {
		return said
	}
	return "no, with another error than the registered ones"
}

// ask asks a token endpoint. An error that is a *refusal is the server's last word; after any other it is not known
// whether the request took effect.
func (c *Client) ask(ctx context.Context, conn Connection, s server, who identity, form url.Values) (tokens, error) {
	form.Set("resource", s.Resource)
	status, raw, err := c.post(ctx, conn, "token endpoint", s.Token, who, form)
	if err != nil {
		return tokens{}, err
	}
	var a struct {
		Access  string      `json:"access_token"`
		Type    string      `json:"token_type"`
		Expires json.Number `json:"expires_in"`
		Refresh string      `json:"refresh_token"`
		Scope   string      `json:"scope"`
		Error   string      `json:"error"`
	}
	readable := json.Unmarshal(raw, &a) == nil
	switch {
	case readable && a.Error != "" && status >= 400 && status < 500 && status != http.StatusTooManyRequests && a.Error != "temporarily_unavailable":
		return tokens{}, &refusal{"the authorization server says " + word(a.Error)}
	case status != http.StatusOK:
		return tokens{}, problem.New(problem.Unavailable, "the token endpoint of connection %s answers with status %d", conn.name(), status)
	case !readable || !token(a.Access) || a.Refresh != "" && !token(a.Refresh) || !strings.EqualFold(a.Type, "bearer"):
		return tokens{}, problem.New(problem.Upstream, "the token endpoint of connection %s answers with what is no bearer token", conn.name())
	}
	out := tokens{access: a.Access, refresh: a.Refresh, scopes: fields(a.Scope)}
	if seconds, err := a.Expires.Float64(); err == nil && seconds > 0 {
		out.expires = c.now().Add(time.Duration(min(seconds, 10*365*24*3600) * float64(time.Second)))
	}
	return out, nil
}

// token says whether text can be a token: what RFC 6750 section 2.1 allows in a header, and a bit more.
func token(text string) bool {
	return text != "" && len(text) <= maxToken && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// post sends a form as a client.
func (c *Client) post(ctx context.Context, conn Connection, what, endpoint string, who identity, form url.Values) (int, []byte, error) {
	secret := who.Secret
	if who.Method != methodNone && secret == "" {
		given, err := c.secret(ctx, conn)
		if err != nil {
			return 0, nil, err
		}
		secret = given.Reveal()
	}
	if who.Method != methodBasic {
		form.Set("client_id", who.ID)
	}
	if who.Method == methodPost {
		form.Set("client_secret", secret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, nil, problem.Wrap(err, problem.Upstream, "the %s of connection %s is no URL", what, conn.name())
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	if who.Method == methodBasic {
		r.SetBasicAuth(url.QueryEscape(who.ID), url.QueryEscape(secret)) // RFC 6749 section 2.3.1
	}
	status, _, raw, err := c.do(conn, what, r)
	return status, raw, err
}
