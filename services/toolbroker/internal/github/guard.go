package github

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/execwarden/execwarden/libs/problem"
)

type scopeKey struct{}

// scope is what the requests of one call may do.
type scope struct {
	repo   string // owner/name, "" for a tool that is about none
	routes []route
	needs  permissions
	sent   atomic.Bool // a request with an effect may have reached GitHub
}

func within(ctx context.Context, s *scope) context.Context {
	return context.WithValue(ctx, scopeKey{}, s)
}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// guarded is the last check before a request leaves: whatever built it, it is one of those that the call's tool makes,
// in the one repository that the call was admitted for, on the connection's own host (go-github#4150).
type guarded struct {
	base *url.URL
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != g.base.Scheme || r.URL.Host != g.base.Host || r.URL.User != nil {
		return nil, problem.New(problem.Denied, "the request would leave %s", g.base.Host)
	}
	s := scopeOf(r.Context())
	if s == nil {
		return nil, problem.New(problem.Denied, "a request outside of a call")
	}
	allowed := g.find(s, r)
	if allowed == nil {
		return nil, problem.New(problem.Denied, "the request's path lies outside what the tool does in repository %s", s.repo)
	}
	if !isRead(r) && !allowed.prepares {
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { s.sent.Store(true) }}))
	}
	return g.next.RoundTrip(r)
}

func (g *guarded) find(s *scope, r *http.Request) *route {
	path := r.URL.EscapedPath()
	if climbs(path) {
		return nil
	}
	below, ok := strings.CutPrefix(path, g.base.EscapedPath())
	if path == graphqlPath(g.base) {
		below, ok = "graphql", true
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if !ok || err != nil {
		return nil
	}
	for i := range s.routes {
		if s.routes[i].asks && !isRead(r) {
			continue
		}
		if s.routes[i].allows(r.Method, below, s.repo, query) {
			return &s.routes[i]
		}
	}
	return nil
}

// climbs says whether a path, as it is or decoded once more by somebody on the way, leaves the folder that it names.
func climbs(escaped string) bool {
	for range 3 {
		for segment := range strings.SplitSeq(strings.ReplaceAll(escaped, `\`, "/"), "/") {
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
