package apipackage

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// credential is a secret and how it is sent.
type credential struct {
	auth Auth
	text string
	sent string // as it is on the wire
}

func newCredential(auth Auth, secret vault.Secret) (credential, error) {
	c := credential{auth: auth, text: secret.Reveal()}
	if auth.Kind == AuthNone {
		return credential{auth: auth}, nil
	}
	if c.text == "" {
		return c, problem.New(problem.Unavailable, "the connection has no credential, and its API needs one")
	}
	switch auth.Kind {
	case AuthBasic:
		c.sent = base64.StdEncoding.EncodeToString([]byte(c.text))
	case AuthQuery:
		c.sent = url.QueryEscape(c.text)
	default:
		c.sent = c.text
		if !httpguts.ValidHeaderFieldValue(c.sent) {
			return c, problem.New(problem.Invalid, "the connection's credential holds a line break or control character")
		}
	}
	return c, nil
}

// add puts the credential into a request, in place of whatever is there.
func (c credential) add(r *http.Request) {
	switch c.auth.Kind {
	case AuthBearer:
		r.Header.Set("Authorization", "Bearer "+c.sent)
	case AuthBasic:
		r.Header.Set("Authorization", "Basic "+c.sent)
	case AuthHeader:
		r.Header.Set(c.auth.Name, c.sent)
	case AuthQuery:
		if r.URL.RawQuery != "" {
			r.URL.RawQuery += "&"
		}
		r.URL.RawQuery += url.QueryEscape(c.auth.Name) + "=" + c.sent
	}
}

// shortestSecret is the length from which a secret is looked for in what comes back. Shorter ones would be found in
// ordinary words.
const shortestSecret = 6

// hide takes the credential out of what an API or the way to it says: some repeat the request.
func (c credential) hide(text string) string {
	for _, s := range []string{c.text, c.sent} {
		if len(s) >= shortestSecret {
			text = strings.ReplaceAll(text, s, "[redacted]")
		}
	}
	return text
}
