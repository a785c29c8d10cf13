package edge

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// Site is where browsers find the gateway.
type Site struct {
	public *url.URL
	hosts  map[string]bool
}

// NewSite makes a site at a public URL. It also answers to the names of this machine itself, and to others: names
// under which programs reach it, such as a cluster's.
func NewSite(public *url.URL, others []string) *Site {
	s := &Site{public: public, hosts: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}}
	for _, h := range append(others, public.Hostname()) {
		s.hosts[strings.ToLower(h)] = true
	}
	return s
}

// Secure says whether browsers reach the site over TLS.
func (s *Site) Secure() bool { return s.public.Scheme == "https" }

// URL is the address of a page of the site.
func (s *Site) URL(path string, query url.Values) string {
	u := *s.public
	u.Path, u.RawQuery = path, query.Encode()
	return u.String()
}

// CheckHost refuses a request that was sent to another name. A name that somebody else controls can be made to point
// here, and a browser would take this site for that one.
func (s *Site) CheckHost(r *http.Request) error {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if !s.hosts[name] {
		return problem.New(problem.Denied, "this server does not answer to %.100q; set public_url or hosts if it should", r.Host)
	}
	return nil
}

// Changes says whether a request may change something, by its method.
func Changes(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// CheckPage refuses what a page of another site sends, where programs send no Origin: of what carries a token and no cookie.
func (s *Site) CheckPage(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || !s.hosts[strings.ToLower(u.Hostname())] {
		return problem.New(problem.Denied, "another site's page sent this, %.100q", origin)
	}
	return nil
}

// CheckOrigin refuses what a page of another site made the browser send. It is asked for every request that changes
// something and carries what a browser adds by itself; SameSite cookies hold the same, this does not rely on them.
func (s *Site) CheckOrigin(r *http.Request) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return problem.New(problem.Denied, "another site's page sent this; use the console's own")
	}
	want := "http://" + r.Host
	if r.Host == s.public.Host {
		want = s.public.Scheme + "://" + s.public.Host
	}
	if origin := r.Header.Get("Origin"); !strings.EqualFold(origin, want) {
		return problem.New(problem.Denied, "a request with a session comes from a page of %s, not from %.100q", want, origin)
	}
	return nil
}
