package oauth

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/execwarden/execwarden/libs/problem"
)

// server is an authorization server, as its metadata describes it, and what tokens of it are for.
type server struct {
	Issuer    string   `json:"issuer"`
	Authorize string   `json:"authorize,omitempty"`
	Token     string   `json:"token"`
	Register  string   `json:"register,omitempty"`
	Revoke    string   `json:"revoke,omitempty"`
	Methods   []string `json:"methods,omitempty"` // how clients may show who they are
	SendsIss  bool     `json:"sends_iss,omitempty"`
	S256      bool     `json:"s256,omitempty"`
	Offline   bool     `json:"offline,omitempty"`   // it has a scope for tokens that are renewed
	Documents bool     `json:"documents,omitempty"` // it knows clients by their metadata documents
	Resource  string   `json:"resource"`
	Scopes    []string `json:"scopes,omitempty"` // that the provider asks for
}

// maxServers is how many authorization servers of one resource are looked at.
const maxServers = 4

// discover finds the authorization server of a connection: the provider names it in its metadata (RFC 9728), which its
// refusal or a well-known place leads to.
func (c *Client) discover(ctx context.Context, conn Connection) (server, error) {
	header, scopes, err := c.challenge(ctx, conn)
	if err != nil {
		return server{}, err
	}
	resource, err := c.resource(ctx, conn, header)
	if err != nil {
		return server{}, err
	}
	if scopes == nil {
		scopes = resource.ScopesSupported
	}
	var last error
	for _, issuer := range resource.AuthorizationServers[:min(len(resource.AuthorizationServers), maxServers)] {
		found, err := c.server(ctx, conn, issuer)
		if err == nil {
			found.Resource, found.Scopes = resource.Resource, scopes
			return found, nil
		}
		last = err
	}
	return server{}, last
}

// challenge asks the provider without a token. It says where the metadata is, or nothing, and which scopes it wants.
func (c *Client) challenge(ctx context.Context, conn Connection) (metadata string, scopes []string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, conn.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return "", nil, problem.Wrap(err, problem.Invalid, "connection %s has no URL that can be asked", conn.name())
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	status, header, _, err := c.do(conn, "MCP server", r)
	if err != nil {
		return "", nil, err
	}
	if status != http.StatusUnauthorized {
		return "", nil, nil // it may still have its metadata at the well-known places
	}
	challenges, err := oauthex.ParseWWWAuthenticate(header.Values("WWW-Authenticate"))
	if err != nil {
		return "", nil, problem.New(problem.Upstream, "the MCP server of connection %s refuses with a WWW-Authenticate header that cannot be read", conn.name())
	}
	for _, ch := range challenges {
		if ch.Scheme == "bearer" {
			return ch.Params["resource_metadata"], fields(ch.Params["scope"]), nil
		}
	}
	return "", nil, nil
}

// resource reads the provider's metadata. Metadata for another resource is refused: a token for that one would be sent
// here. Where there is none, the provider's own origin is its authorization server, as in the protocol of 2025-03-26.
func (c *Client) resource(ctx context.Context, conn Connection, named string) (oauthex.ProtectedResourceMetadata, error) {
	const what, name = "protected resource metadata", "oauth-protected-resource"
	places := []string{wellKnown(conn.URL, name, true), wellKnown(conn.URL, name, false)}
	if named != "" {
		places = []string{named}
	}
	for _, at := range slices.Compact(places) {
		var m oauthex.ProtectedResourceMetadata
		found, err := c.document(ctx, conn, what, at, &m)
		switch {
		case err != nil:
			return m, err
		case !found:
			continue
		case !covers(m.Resource, conn.URL):
			return m, problem.New(problem.Upstream, "the %s of connection %s is about %.200q, and the connection's URL is not below that", what, conn.name(), m.Resource)
		case len(m.AuthorizationServers) == 0:
			return m, problem.New(problem.Upstream, "the %s of connection %s names no authorization server", what, conn.name())
		}
		return m, nil
	}
	if named != "" {
		return oauthex.ProtectedResourceMetadata{}, problem.New(problem.Upstream, "the %s that the MCP server of connection %s names is not there", what, conn.name())
	}
	u, err := url.Parse(conn.URL)
	if err != nil {
		return oauthex.ProtectedResourceMetadata{}, problem.Wrap(err, problem.Invalid, "connection %s has no URL that can be asked", conn.name())
	}
	return oauthex.ProtectedResourceMetadata{Resource: conn.URL, AuthorizationServers: []string{u.Scheme + "://" + u.Host}}, nil
}

// covers says whether a resource is the URL's own, or stands above it at the same origin.
func covers(resource, of string) bool {
	r, err := url.Parse(resource)
	u, err2 := url.Parse(of)
	if err != nil || err2 != nil || r.Scheme != u.Scheme || !strings.EqualFold(r.Host, u.Host) || r.User != nil || r.Fragment != "" || r.RawQuery != "" && r.RawQuery != u.RawQuery {
		return false
	}
	above := strings.TrimSuffix(r.EscapedPath(), "/")
	path := u.EscapedPath()
	return strings.TrimSuffix(path, "/") == above || strings.HasPrefix(path, above+"/")
}

// server reads an authorization server's metadata, from the places of RFC 8414 and OpenID Connect.
func (c *Client) server(ctx context.Context, conn Connection, issuer string) (server, error) {
	const what = "authorization server"
	if _, err := conn.endpoint(what, issuer); err != nil {
		return server{}, err
	}
	places := []string{
		wellKnown(issuer, "oauth-authorization-server", true), wellKnown(issuer, "openid-configuration", true),
		strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration",
	}
	for _, at := range slices.Compact(places) {
		var m oauthex.AuthServerMeta
		found, err := c.document(ctx, conn, what+" metadata", at, &m)
		if err != nil {
			return server{}, err
		}
		if !found {
			continue
		}
		// RFC 8414 section 3.3: whoever is asked for one issuer and answers for another is not to be believed.
		if strings.TrimSuffix(m.Issuer, "/") != strings.TrimSuffix(issuer, "/") {
			return server{}, problem.New(problem.Upstream, "the %s of connection %s, %.200q, calls itself %.200q", what, conn.name(), issuer, m.Issuer)
		}
		for name, endpoint := range map[string]string{"authorization endpoint": m.AuthorizationEndpoint, "token endpoint": m.TokenEndpoint,
			"registration endpoint": m.RegistrationEndpoint, "revocation endpoint": m.RevocationEndpoint} {
			if endpoint == "" && name != "token endpoint" {
				continue
			}
			if _, err := conn.endpoint(name, endpoint); err != nil {
				return server{}, err
			}
		}
		return server{
			Issuer: m.Issuer, Authorize: m.AuthorizationEndpoint, Token: m.TokenEndpoint, Register: m.RegistrationEndpoint, Revoke: m.RevocationEndpoint,
			Methods: m.TokenEndpointAuthMethodsSupported, SendsIss: m.AuthorizationResponseIssParameterSupported,
			S256: slices.Contains(m.CodeChallengeMethodsSupported, "S256"), Offline: slices.Contains(m.ScopesSupported, offline), Documents: m.ClientIDMetadataDocumentSupported,
		}, nil
	}
	return server{}, problem.New(problem.Upstream, "the %s of connection %s, %.200s, has no metadata", what, conn.name(), issuer)
}

// fields splits a scope, nil when there is none.
func fields(scope string) []string {
	if all := strings.Fields(scope); len(all) > 0 {
		return all
	}
	return nil
}
