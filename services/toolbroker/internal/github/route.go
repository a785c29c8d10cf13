package github

import (
	"net/http"
	"net/url"
	"strings"
)

// route is one kind of request that a tool makes, such as "GET {repo}/issues/{number}". {repo} is the repository that
// the call was admitted for, {number} digits, any other {name} one segment, {name...} one or more.
type route struct {
	method   string
	segments []string
	query    string // what the search text starts with, "" when the route is no search
	prepares bool   // writes what nobody sees until another request refers to it
	asks     bool   // a POST that only reads
}

// readRoute reads a route: a method, a path, and "?q=" with what a search has to start with. A leading "prepare" marks a
// request without a visible effect, "ask" a POST that only reads.
func readRoute(s string) route {
	rest, prepares := strings.CutPrefix(s, "prepare ")
	rest, asks := strings.CutPrefix(rest, "ask ")
	method, path, _ := strings.Cut(rest, " ")
	path, query, _ := strings.Cut(path, "?q=")
	return route{method: method, segments: strings.Split(path, "/"), query: query, prepares: prepares, asks: asks}
}

// allows says whether a request is of this kind. path is the escaped path below the API's own.
func (r route) allows(method, path, repo string, query url.Values) bool {
	if method != r.method {
		return false
	}
	if r.segments[0] == "{repo}" {
		rest, ok := strings.CutPrefix(path, "repos/"+repo)
		if !ok || repo == "" || rest != "" && rest[0] != '/' {
			return false
		}
		path = "{repo}" + rest
	}
	segments := strings.Split(path, "/")
	for i, want := range r.segments {
		if strings.HasSuffix(want, "...}") {
			return i < len(segments) && segments[i] != ""
		}
		if i >= len(segments) || !fits(want, segments[i]) {
			return false
		}
	}
	return len(segments) == len(r.segments) && (r.query == "" || r.searches(query, repo))
}

func fits(want, got string) bool {
	switch {
	case want == "{repo}" || !strings.HasPrefix(want, "{"):
		return got == want
	case want == "{number}":
		return got != "" && strings.Trim(got, "0123456789") == ""
	}
	return got != ""
}

// searches says whether a search starts with what bounds it, and says it once. In front it cannot be swallowed by a quote
// that the rest leaves open.
func (r route) searches(query url.Values, repo string) bool {
	bound := strings.ReplaceAll(r.query, "{repo}", repo)
	q := query["q"]
	return len(q) == 1 && (q[0] == bound || strings.HasPrefix(q[0], bound+" "))
}

// isRead says whether a request only reads.
func isRead(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Context().Value(readKey{}) != nil
}

type readKey struct{}
