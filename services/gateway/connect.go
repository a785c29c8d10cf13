package gateway

import (
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/execwarden/execwarden/libs/problem"
)

// connectors passes connectors' connections on to NATS. What a browser would add to them is taken off, so that no
// page can use a member's cookies: NATS judges the NKey alone.
func (s *Service) connectors() http.Handler {
	if s.cfg.ConnectorsURL == "" {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			problem.WriteHTTP(w, problem.New(problem.NotFound, "connectors_url is not set, so no machine can connect here"))
		})
	}
	to, _ := url.Parse(s.cfg.ConnectorsURL) // validated
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path, r.Out.URL.RawQuery = "/", ""
			r.Out.Header.Del("Cookie")
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("Origin")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.log.Warn("a connector could not be let through", "err", err)
			problem.WriteHTTP(w, problem.New(problem.Unavailable, "the bus does not take connectors now"))
		},
	}
}
