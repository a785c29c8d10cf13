package oauth

import (
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/execwarden/execwarden/libs/problem"
)

// checkRedirects checks where a client may have its logins lead back to. private schemes, such as an editor's own, are for
// clients that a member registered: any program on a machine may claim one.
func checkRedirects(list []string, private bool) error {
	if len(list) == 0 || len(list) > maxRedirects {
		return problem.New(problem.Invalid, "a client has 1 to %d redirect URIs", maxRedirects)
	}
	for _, raw := range list {
		if err := checkRedirect(raw, private); err != nil {
			return err
		}
	}
	return nil
}

// privateScheme is what a private-use scheme looks like (RFC 8252, section 7.1), and hostName what of a URL goes into a policy.
var (
	privateScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]{1,60}$`)
	hostName      = regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9.-]+)(:[0-9]{1,5})?$`)
)

// never are schemes that a browser does something with by itself.
var never = map[string]bool{"javascript": true, "data": true, "vbscript": true, "file": true, "blob": true, "about": true, "filesystem": true, "view-source": true, "ws": true, "wss": true, "ftp": true, "mailto": true}

func checkRedirect(raw string, private bool) error {
	u, err := url.Parse(raw)
	invalid := func(why string) error {
		return problem.New(problem.Invalid, "redirect URI %.120q: %s", raw, why)
	}
	if err != nil || len(raw) > maxRedirect || strings.ContainsAny(raw, "\\ \t\r\n*") || u.Fragment != "" || strings.Contains(raw, "#") || u.User != nil {
		return invalid("it is an absolute URL without fragment, user or wildcard")
	}
	switch scheme := u.Scheme; {
	case scheme == "https" || scheme == "http":
		if !hostName.MatchString(u.Host) || u.Opaque != "" {
			return invalid("it has no plain host")
		}
		if scheme == "http" && !loopback(u) {
			return invalid("http is for 127.0.0.1, [::1] and localhost only")
		}
	case !private:
		return invalid("a metadata document names https, or http on the same machine")
	case !privateScheme.MatchString(scheme) || never[scheme]:
		return invalid("its scheme is not one that a program can have of its own")
	}
	return nil
}

func loopback(u *url.URL) bool {
	host := u.Hostname()
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() && a.Zone() == ""
}

// matches says whether a redirect URI is one of a client's: to the letter, but for the port of one on the same machine, which
// a program is given when it starts (RFC 8252, section 7.3).
func matches(registered []string, given string) bool {
	for _, have := range registered {
		if have == given {
			return true
		}
		h, err1 := url.Parse(have)
		g, err2 := url.Parse(given)
		if err1 != nil || err2 != nil || h.Scheme != "http" || !loopback(h) || checkRedirect(given, false) != nil || h.Hostname() != g.Hostname() {
			continue
		}
		h.Host, g.Host = "", ""
		if h.String() == g.String() {
			return true
		}
	}
	return false
}

// answerAt adds parameters to a redirect URI, whose own stay.
func answerAt(redirect string, params url.Values) string {
	u, _ := url.Parse(redirect) // checked when it was matched
	if q := u.RawQuery; q != "" {
		u.RawQuery = q + "&" + params.Encode()
	} else {
		u.RawQuery = params.Encode()
	}
	return u.String()
}
