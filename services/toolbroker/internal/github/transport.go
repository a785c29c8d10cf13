package github

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
)

type repoKey struct{}

// within bounds the requests made with ctx to the repository of the checked arguments, which the grant was compared
// with.
func within(ctx context.Context, a arguments) context.Context {
	return context.WithValue(ctx, repoKey{}, a.Owner+"/"+a.Repo)
}

// guarded is the last check before a request leaves: whatever built its path, it lies in the one repository that the
// call was admitted for, on the connection's own host.
type guarded struct {
	base  *url.URL
	token func(context.Context) (vault.Secret, error)
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != g.base.Scheme || r.URL.Host != g.base.Host {
		return nil, problem.New(problem.Denied, "the request would leave %s", g.base.Host)
	}
	repo, _ := r.Context().Value(repoKey{}).(string)
	path := r.URL.EscapedPath()
	rest, ok := strings.CutPrefix(path, g.base.EscapedPath()+"repos/"+repo)
	if repo == "" || !ok || rest != "" && rest[0] != '/' || climbs(path) {
		return nil, problem.New(problem.Denied, "the request's path lies outside repository %s", repo)
	}
	token, err := g.token(r.Context())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token.Reveal())
	return g.next.RoundTrip(r)
}

// climbs says whether a path, as it is or decoded once more by somebody on the way, leaves the folder that it names.
func climbs(escaped string) bool {
	for range 3 {
		for _, segment := range strings.Split(strings.ReplaceAll(escaped, `\`, "/"), "/") {
			if segment == "." || segment == ".." {
				return true
			}
		}
		decoded, err := url.PathUnescape(escaped)
		if err != nil {
			return true
		}
		if decoded == escaped {
			return false
		}
		escaped = decoded
	}
	return true // encoded over and over: nobody does that in good faith
}
