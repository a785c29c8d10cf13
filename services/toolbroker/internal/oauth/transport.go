package oauth

import (
	"net/http"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Transport adds a connection's token to each request. The way out behind it leads to the connection's own origin only,
// and follows no redirect.
type Transport struct {
	Client     *Client
	Connection Connection
	Next       http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A request that is answered with 401 was not acted on, so that it is made again,
// once, with another token. Nor was one that is refused for want of scopes, which takes a person. Any other answer is final.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.Client.Token(r.Context(), t.Connection, "")
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, upstream.Harmlessly(err)
	}
	resp, err := t.enough(r, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
		return resp, err
	}
	resp.Body.Close()
	again := r.Clone(r.Context())
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, upstream.Harmlessly(err)
		}
	}
	if token, err = t.Client.Token(r.Context(), t.Connection, token.Reveal()); err != nil {
		if again.Body != nil {
			again.Body.Close()
		}
		return nil, upstream.Harmlessly(err)
	}
	resp, err = t.enough(again, token)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		resp.Body.Close()
		return nil, upstream.Harmlessly(problem.New(problem.Upstream, "the MCP server of connection %s does not take the token that was just made for it", t.Connection.name()))
	}
	return resp, err
}

// enough sends a request, and makes a refusal for want of scopes an error that says what helps.
func (t Transport) enough(r *http.Request, token vault.Secret) (*http.Response, error) {
	resp, err := t.send(r, token)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	wants, lacks := lacking(resp.Header)
	if !lacks {
		return resp, nil
	}
	resp.Body.Close()
	return nil, upstream.Harmlessly(t.Client.lack(r.Context(), t.Connection, token.Reveal(), wants))
}

func (t Transport) send(r *http.Request, token vault.Secret) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token.Reveal())
	return t.Next.RoundTrip(r)
}
