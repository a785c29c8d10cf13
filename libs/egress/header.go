package egress

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/execwarden/execwarden/libs/problem"
)

// forbidden headers belong to the connection, or claim to be a proxy's word about somebody.
var forbidden = map[string]bool{
	"Host": true, "Connection": true, "Content-Length": true, "Transfer-Encoding": true, "Te": true, "Trailer": true,
	"Upgrade": true, "Keep-Alive": true, "Expect": true, "Forwarded": true, "Via": true, "X-Real-Ip": true,
}

var forbiddenPrefixes = []string{"Proxy-", "X-Forwarded-"}

// checkHeaders refuses what would change the request's meaning on the way.
func checkHeaders(h http.Header) error {
	for name, values := range h {
		if !httpguts.ValidHeaderFieldName(name) {
			return problem.New(problem.Invalid, "the header name %q is not valid", name)
		}
		canonical := http.CanonicalHeaderKey(name)
		if forbidden[canonical] {
			return problem.New(problem.Denied, "fetch blocked: the header %s may not be set", canonical)
		}
		for _, prefix := range forbiddenPrefixes {
			if strings.HasPrefix(canonical, prefix) {
				return problem.New(problem.Denied, "fetch blocked: the header %s may not be set", canonical)
			}
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return problem.New(problem.Invalid, "the value of the header %s holds a line break or control character", canonical)
			}
		}
	}
	return nil
}

// harmless headers go along to another origin. All others may be credentials, whatever they are called.
var harmless = map[string]bool{
	"Accept": true, "Accept-Language": true, "Cache-Control": true, "If-Modified-Since": true, "If-None-Match": true,
	"Range": true, "User-Agent": true,
}

func dropCredentials(h http.Header) {
	for name := range h {
		if !harmless[http.CanonicalHeaderKey(name)] {
			delete(h, name)
		}
	}
}
