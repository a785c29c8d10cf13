package egress

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/idna"

	"github.com/execwarden/execwarden/libs/problem"
)

// Rule allows requests. A request goes by the first rule that matches its host, port and method, and by no other.
type Rule struct {
	// Hosts are the hosts that the rule is for: "api.example.com", "api.example.com:8443", "*.example.com" for every
	// name below example.com, or "*" for any public host. Without a port, 80 and 443 are meant. Required.
	Hosts []string
	// Methods that are allowed; "*" is any. Defaults to GET and HEAD.
	Methods []string
	// AllowPrivate are addresses that may be dialled though they are not public: "127.0.0.1:8080", "10.1.2.3",
	// "10.0.0.0/8". They count after resolving, and do not add a host or a port: Hosts does that. A cloud's metadata
	// address is never part of a range; it has to be named itself. Defaults to none.
	AllowPrivate []string
	// Deny are what may not be reached even so, such as one's own: addresses and ranges, as in AllowPrivate, which count
	// after resolving, and hosts as in Hosts; without a port, every port. It goes before the rest. Defaults to none.
	Deny []string
	// DenyNow is Deny for what changes: it is asked for each address that is judged. While it gives an error, everything is denied.
	// MachineAddresses is one. Defaults to none.
	DenyNow func() ([]netip.Prefix, error)
	// MaxRequest is the size of a request's body. Defaults to no limit.
	MaxRequest int64
	// MaxBytes is the size of a response body after decompression. Defaults to 5 MiB; -1 is no limit.
	MaxBytes int64
	// Timeout is for one request, from its start to the last byte of its response, and for a whole Do with its
	// redirects. Defaults to 10 s; -1 leaves it to the request's context, for streams.
	Timeout time.Duration
	// MaxRedirects that are followed. Defaults to 5; -1 is none: a redirect is then an answer like any other.
	MaxRedirects int
	// RootCAs verify servers. Defaults to the system's.
	RootCAs *x509.CertPool
	// Resolver of names. Defaults to the system's.
	Resolver *net.Resolver
}

// WithDefaults fills what is zero.
func (r Rule) WithDefaults() Rule {
	if len(r.Methods) == 0 {
		r.Methods = []string{http.MethodGet, http.MethodHead}
	}
	if r.MaxBytes == 0 {
		r.MaxBytes = 5 << 20
	}
	if r.Timeout == 0 {
		r.Timeout = 10 * time.Second
	}
	if r.MaxRedirects == 0 {
		r.MaxRedirects = 5
	}
	return r
}

// rule is a Rule that was read.
type rule struct {
	Rule
	hosts      []pattern
	exceptions []exception
	deny       []exception
	denied     []pattern
	transport  *http.Transport // one per rule, so that no connection made under one serves another
}

// pattern is one entry of Hosts.
type pattern struct {
	name  string // for an exact match
	below string // ".example.com"
	any   bool
	port  uint16 // 0 is 80 and 443
}

func (p pattern) matches(t target) bool {
	if p.port != t.port && (p.port != 0 || t.port != 80 && t.port != 443) {
		return false
	}
	return p.names(t)
}

// names reports whether p is of the target's host, whatever the port.
func (p pattern) names(t target) bool {
	return p.any || p.name == t.host || p.below != "" && strings.HasSuffix(t.host, p.below)
}

func parsePattern(s string) (pattern, error) {
	var p pattern
	host := s
	if a, err := netip.ParseAddrPort(s); err == nil {
		return pattern{name: a.Addr().Unmap().String(), port: a.Port()}, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return pattern{name: a.Unmap().String()}, nil
	}
	if name, port, found := strings.Cut(s, ":"); found {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return p, fmt.Errorf("%q has no valid port", s)
		}
		host, p.port = name, uint16(n)
	}
	if len(host) > 1 && host[len(host)-2] != '*' {
		host = strings.TrimSuffix(host, ".")
	}
	host = strings.ToLower(host)
	if strings.ContainsFunc(host, func(r rune) bool { return r > unicode.MaxASCII }) { // hosts are judged as they are dialled
		glob, name := "", host
		if rest, ok := strings.CutPrefix(host, "*."); ok {
			glob, name = "*.", rest
		}
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return p, fmt.Errorf("%q is not a host", s)
		}
		host = glob + ascii
	}
	below, glob := strings.CutPrefix(host, "*.")
	switch {
	case host == "*":
		p.any = true
	case glob && below != "" && !strings.ContainsAny(below, "*/@ "):
		p.below = "." + below
	case host != "" && !strings.ContainsAny(host, "*/@ "):
		p.name = host
	default:
		return p, fmt.Errorf("%q is not a host", s)
	}
	return p, nil
}

func readRule(r Rule) (*rule, error) {
	out := &rule{Rule: r.WithDefaults()}
	invalid := func(field string, err error) (*rule, error) {
		return nil, problem.New(problem.Invalid, "egress rule: %s: %v", field, err)
	}
	if len(r.Hosts) == 0 {
		return nil, problem.New(problem.Invalid, "egress rule: Hosts is required")
	}
	if r.MaxBytes < -1 || r.Timeout < -1 || r.MaxRedirects < -1 || r.MaxRequest < 0 {
		return nil, problem.New(problem.Invalid, "egress rule: a limit is negative; -1 is none")
	}
	for _, s := range r.Hosts {
		p, err := parsePattern(s)
		if err != nil {
			return invalid("Hosts", err)
		}
		out.hosts = append(out.hosts, p)
	}
	for _, s := range r.AllowPrivate {
		e, err := parseException(s)
		if err != nil {
			return invalid("AllowPrivate", err)
		}
		out.exceptions = append(out.exceptions, e)
	}
	for _, s := range r.Deny {
		if e, err := parseException(s); err == nil {
			out.deny = append(out.deny, e)
			continue
		}
		p, err := parsePattern(s)
		if err != nil {
			return invalid("Deny", err)
		}
		out.denied = append(out.denied, p)
	}
	return out, nil
}

func (r *rule) allows(t target, method string) bool {
	return r.covers(t) && (slices.Contains(r.Methods, method) || slices.Contains(r.Methods, "*"))
}

// denies reports whether Deny names a host.
func (r *rule) denies(t target) bool {
	return slices.ContainsFunc(r.denied, func(p pattern) bool { return p.names(t) && (p.port == 0 || p.port == t.port) })
}

func (r *rule) covers(t target) bool {
	return !r.denies(t) && slices.ContainsFunc(r.hosts, func(p pattern) bool { return p.matches(t) })
}
