package egress

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/execwarden/execwarden/libs/problem"
)

// target is where a URL leads, in the one spelling that is both judged and dialled.
type target struct {
	scheme string
	host   string // lower case, ASCII, no brackets
	port   uint16
}

// Inspect gives the host and port that a URL leads to, in the one spelling that is judged and dialled: for who keeps a list of
// their own. Problems: denied, for what no rule could allow.
func Inspect(u *url.URL) (host string, port uint16, err error) {
	t, err := inspect(u)
	return t.host, t.port, err
}

func (t target) origin() string { return t.scheme + "://" + t.authority() }

func (t target) authority() string {
	host := t.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if t.port == defaultPort(t.scheme) {
		return host
	}
	return host + ":" + strconv.Itoa(int(t.port))
}

func defaultPort(scheme string) uint16 {
	if scheme == "https" {
		return 443
	}
	return 80
}

// inspect reads a URL and refuses, before anything is resolved, what can only be a mistake or a trick.
func inspect(u *url.URL) (target, error) {
	refuse := func(why string) (target, error) {
		return target{}, problem.New(problem.Denied, "fetch blocked: %s", why)
	}
	t := target{scheme: strings.ToLower(u.Scheme)}
	switch {
	case t.scheme != "http" && t.scheme != "https":
		return refuse("only http and https URLs are allowed")
	case u.User != nil:
		return refuse("a URL must not hold a user name or password")
	case u.Opaque != "" || u.Host == "":
		return refuse("the URL has no host")
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return refuse("an address must not have a zone")
		}
		t.host = a.Unmap().String()
	} else {
		ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(host, "."))
		if err != nil || ascii == "" || len(ascii) > 253 {
			return refuse("the host name is not valid")
		}
		// The transport maps the name again. One that does not stay as it is would be dialled as another.
		if again, err := idna.Lookup.ToASCII(ascii); err != nil || again != ascii {
			return refuse("the host name is not valid")
		}
		t.host = strings.ToLower(ascii)
		if a, err := netip.ParseAddr(t.host); err == nil {
			t.host = a.Unmap().String() // digits of another script become an address only now
		} else if numeric(t.host) || strings.Contains(t.host, "..") || strings.HasPrefix(t.host, ".") || strings.ContainsAny(t.host, ":%/\\@?#[] ") {
			return refuse("the host is neither a name nor an address")
		}
	}
	t.port = defaultPort(t.scheme)
	if text := u.Port(); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return refuse("the port is not valid")
		}
		t.port = uint16(n)
	} else if strings.HasSuffix(u.Host, ":") {
		return refuse("the port is not valid")
	}
	return t, nil
}

// numeric reports whether a name's last label is a number: 127.1, 2130706433 and 0x7f.1 are addresses to some
// resolvers and names to others.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if rest, hex := strings.CutPrefix(last, "0x"); hex {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return last == "" || strings.Trim(last, "0123456789") == ""
}
