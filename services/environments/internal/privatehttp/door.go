// Package privatehttp is the connector's way to HTTP services that only its machine reaches: those that the machine's
// policy lists, and nothing that a name, a redirect or a proxy makes of them.
package privatehttp

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

// Door makes requests to what the policy lists.
type Door struct{ targets []target }

// target is one entry of the list. It has a way out of its own, so that no connection made under one serves another.
type target struct {
	localpolicy.PrivateHTTP
	way *egress.Client
}

// Open makes the door. Its names are resolved, and its servers verified, as the machine does.
func Open(list []localpolicy.PrivateHTTP) (*Door, error) { return open(list, nil, nil) }

func open(list []localpolicy.PrivateHTTP, names *net.Resolver, roots *x509.CertPool) (*Door, error) {
	d := &Door{}
	for _, t := range list {
		rule := t.Rule()
		rule.Resolver, rule.RootCAs = names, roots
		way, err := egress.New(rule)
		if err != nil {
			return nil, err
		}
		d.targets = append(d.targets, target{t, way})
	}
	return d, nil
}

// find gives the target that a request goes by. Problems: denied, naming the rule.
func (d *Door) find(req *http.Request) (*target, error) {
	if _, _, err := egress.Inspect(req.URL); err != nil {
		return nil, refused(err)
	}
	secret := credentialIn(req.Header)
	why := localpolicy.PrivateHTTP{}.Denied("%s is not listed", req.URL.Host)
	for i := range d.targets {
		t := &d.targets[i]
		if _, err := t.way.RuleOf(req); err != nil {
			continue
		}
		switch {
		case !t.Covers(req.URL):
			why = t.Denied("of %s only %s is listed", req.URL.Host, t.Target)
		case !slices.Contains(t.Methods, req.Method):
			why = t.Denied("%s is not listed for %s, but %s", req.Method, t.Target, strings.Join(t.Methods, ", "))
		case secret != "" && !t.Credentials:
			why = t.Denied("header %s may be a credential, and %s takes none from callers", secret, t.Target)
		default:
			if err := t.way.Allows(req); err != nil {
				return nil, refused(err)
			}
			return t, nil
		}
	}
	return nil, why
}

// refused is a refusal of the way out in this side's words.
func refused(err error) error {
	d := problem.DetailOf(err)
	if d.Code != problem.Denied {
		return err
	}
	return localpolicy.PrivateHTTP{}.Denied("%s", strings.TrimPrefix(d.Message, "fetch blocked: "))
}

// credentialWords are in the names of headers that are credentials by custom.
var credentialWords = []string{"authorization", "cookie", "token", "secret", "api-key", "apikey", "password", "credential", "session", "signature", "x-auth"}

// credentialIn names a header that may be a credential.
func credentialIn(h http.Header) string {
	for name := range h {
		if slices.ContainsFunc(credentialWords, func(word string) bool { return strings.Contains(strings.ToLower(name), word) }) {
			return name
		}
	}
	return ""
}

// next gives the request that a redirect leads to. What the caller meant for one origin goes to no other, and not back
// either.
func (d *Door) next(ctx context.Context, req *http.Request, location string) (*http.Request, error) {
	to, err := req.URL.Parse(location)
	if err != nil {
		return nil, problem.New(problem.Upstream, "%s redirects to what is no URL", req.URL.Host)
	}
	if req.URL.Scheme == "https" && to.Scheme != "https" {
		return nil, localpolicy.PrivateHTTP{}.Denied("%s redirects from https to %.20s", req.URL.Host, to.Scheme)
	}
	out, err := http.NewRequestWithContext(ctx, req.Method, to.String(), nil)
	if err != nil {
		return nil, problem.New(problem.Upstream, "%s redirects to what is no URL", req.URL.Host)
	}
	if out.URL.Scheme == req.URL.Scheme && strings.EqualFold(out.URL.Host, req.URL.Host) {
		out.Header = req.Header.Clone()
	}
	return out, nil
}
