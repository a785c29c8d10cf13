package localpolicy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/egress"
)

// PrivateHTTP is an HTTP service that the connector asks for callers.
type PrivateHTTP struct {
	Target      string   `yaml:"target"`      // host, host:port, or the beginning of a URL
	Methods     []string `yaml:"methods"`     // default: GET and HEAD
	Credentials bool     `yaml:"credentials"` // callers may send headers that are credentials

	scheme, host, path string
	loopback, address  bool // what host is
}

// HTTPMethods are those that may be listed.
var HTTPMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// HTTPRule is the rule that refuses requests.
const HTTPRule = "private_http"

// String shows a target to people, with its methods.
func (t PrivateHTTP) String() string {
	out := t.Target + " " + strings.Join(t.Methods, ",")
	if t.Credentials {
		out += " with credentials"
	}
	return out
}

// Denied is a refusal by rule private_http.
func (PrivateHTTP) Denied(format string, args ...any) error { return denied(HTTPRule, format, args...) }

// never are addresses that are dialled under no name: the machine's own, of which it is not said that the name is it,
// broadcasts, and those that carry another address inside. A cloud's metadata is refused by egress itself.
var never = []string{"0.0.0.0/8", "127.0.0.0/8", "::/96", "224.0.0.0/4", "255.255.255.255", "ff00::/8", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"}

// Rule is the target as a way out. A name that leads to this machine itself, at whatever address, is not asked: only a policy that
// has the address, or localhost, means that. It leaves methods, paths, sizes and time to whoever has it.
func (t PrivateHTTP) Rule() egress.Rule {
	r := egress.Rule{Hosts: []string{t.host}, Methods: []string{"*"}, AllowPrivate: []string{"0.0.0.0/0", "::/0"}, Deny: never, MaxBytes: -1, Timeout: -1, MaxRedirects: -1}
	if t.loopback {
		r.AllowPrivate, r.Deny = []string{"127.0.0.0/8", "::1"}, nil
	}
	if !t.loopback && !t.address {
		r.DenyNow = egress.MachineAddresses
	}
	return r
}

// Covers says whether a URL that leads to the target's host lies within it. A path in which a server may see another than
// is seen here is in no target that has one.
func (t PrivateHTTP) Covers(u *url.URL) bool {
	if t.scheme != "" && !strings.EqualFold(u.Scheme, t.scheme) {
		return false
	}
	if t.path == "" {
		return true
	}
	escaped := strings.ToLower(u.EscapedPath())
	for _, trick := range []string{"%2e", "%2f", "%5c", "%25", "%00", "\\", "//"} {
		if strings.Contains(escaped, trick) {
			return false
		}
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
			return false
		}
	}
	top := strings.TrimSuffix(t.path, "/")
	return u.Path == t.path || strings.HasPrefix(u.Path, top+"/")
}

func (p *Policy) validateHTTP() error {
	if len(p.PrivateHTTP) > 64 {
		return errors.New("private_http has at most 64 entries")
	}
	for i := range p.PrivateHTTP {
		if err := p.PrivateHTTP[i].validate(); err != nil {
			return fmt.Errorf("private_http target %.200q %w", p.PrivateHTTP[i].Target, err)
		}
	}
	return nil
}

func (t *PrivateHTTP) validate() error {
	if t.Methods == nil {
		t.Methods = []string{http.MethodGet, http.MethodHead}
	}
	for _, m := range t.Methods {
		if !slices.Contains(HTTPMethods, m) {
			return fmt.Errorf("has method %.20q, which is not one of %s", m, strings.Join(HTTPMethods, ", "))
		}
	}
	if err := t.read(); err != nil {
		return err
	}
	name := t.host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	address, err := netip.ParseAddr(name)
	t.address = err == nil
	t.loopback = strings.EqualFold(name, "localhost") || err == nil && address.Unmap().IsLoopback()
	way, err := egress.New(t.Rule())
	if err != nil {
		return errors.New("is no host, host:port or beginning of a URL")
	}
	if !address.IsValid() {
		return nil
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(name, "80")}
	if _, port, err := net.SplitHostPort(t.host); err == nil {
		u.Host = net.JoinHostPort(name, port)
	}
	if way.Allows(&http.Request{Method: http.MethodGet, URL: &u, Header: http.Header{}}) != nil {
		return errors.New("is an address that is never asked, such as a cloud's metadata")
	}
	return nil
}

// read takes a target apart.
func (t *PrivateHTTP) read() error {
	t.host = t.Target
	if !strings.Contains(t.Target, "://") {
		if strings.ContainsAny(t.Target, "/?#@ ") || t.Target == "" {
			return errors.New("is no host; a path needs http:// or https:// in front")
		}
	} else {
		u, err := url.Parse(t.Target)
		if err != nil || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" {
			return errors.New("is no beginning of a URL: scheme, host, port and path")
		}
		host, port, err := egress.Inspect(u)
		if err != nil {
			return errors.New("is no URL of a host")
		}
		t.scheme, t.path = strings.ToLower(u.Scheme), strings.TrimPrefix(u.Path, "/")
		t.host = net.JoinHostPort(host, fmt.Sprint(port))
		if t.path != "" {
			t.path = u.Path
			if !t.Covers(u) {
				return errors.New("has a path with dots, doubled or escaped slashes")
			}
		}
	}
	if strings.HasPrefix(t.host, "*:") || t.host == "*" {
		return errors.New("is every host; name them")
	}
	return nil
}
