package github

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

// credentials gives each request its token: the connection's own, or one that its App gets for what the call may do.
type credentials struct {
	base *url.URL
	open func(context.Context) (vault.Secret, error)
	next http.RoundTripper

	mu     sync.Mutex
	app    *app
	text   string // what app was read from
	closed bool
}

func newCredentials(base *url.URL, open func(context.Context) (vault.Secret, error), next http.RoundTripper) *credentials {
	return &credentials{base: base, open: open, next: next}
}

// token is the token for a call. old is one that GitHub has just refused, "" at first.
func (c *credentials) token(ctx context.Context, s *scope, old string) (vault.Secret, error) {
	secret, a, err := c.read(ctx)
	if err != nil || a == nil {
		return secret, err
	}
	return a.token(ctx, s, old)
}

// read opens the credential, and reads it as an App's when it is one.
func (c *credentials) read(ctx context.Context) (vault.Secret, *app, error) {
	secret, err := c.open(ctx)
	if err != nil {
		return vault.Secret{}, nil, err
	}
	text := strings.TrimSpace(secret.Reveal())
	if !strings.HasPrefix(text, "{") {
		if text == "" || strings.ContainsAny(text, "\r\n") {
			return vault.Secret{}, nil, problem.New(problem.Invalid, "the connection's credential is neither a token nor an App's JSON")
		}
		return vault.NewSecret(text), nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return vault.Secret{}, nil, problem.New(problem.Unavailable, "the connection is being closed")
	}
	if c.app == nil || c.text != text {
		made, err := readApp(text, c.base, c.next)
		if err != nil {
			return vault.Secret{}, nil, err
		}
		c.app, c.text = made, text
	}
	return vault.Secret{}, c.app, nil
}

func (c *credentials) renounce() {
	c.mu.Lock()
	a := c.app
	c.mu.Unlock()
	if a != nil {
		a.renounce()
	}
}

func (c *credentials) close() {
	c.mu.Lock()
	c.closed = true
	a := c.app
	c.mu.Unlock()
	if a != nil {
		a.close()
	}
}

// authorized adds the token. What reaches it goes to the connection's own origin, as guarded sees to, and nothing behind
// it follows a redirect (go-github#4190).
type authorized struct {
	credentials *credentials
	next        http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A token that GitHub no longer takes is replaced once: a 401 had no effect.
func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	s := scopeOf(r.Context())
	token, err := a.credentials.token(r.Context(), s, "")
	if err != nil {
		return nil, err
	}
	resp, err := a.with(r, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	fresh, err := a.credentials.token(r.Context(), s, token.Reveal())
	var why *refusal
	if errors.As(err, &why) { // such as a suspended installation, which says more than bad credentials
		resp.Body.Close()
		return nil, why
	}
	if err != nil || fresh.Reveal() == token.Reveal() || r.Body != nil && r.GetBody == nil {
		return resp, nil // there is no other: GitHub's own words are the answer
	}
	again := r.Clone(r.Context())
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return resp, nil
		}
	}
	resp.Body.Close()
	return a.with(again, fresh)
}

func (a *authorized) with(r *http.Request, token vault.Secret) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token.Reveal())
	return a.next.RoundTrip(r)
}
