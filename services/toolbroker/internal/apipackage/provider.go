package apipackage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Provider is one connection to an API.
type Provider struct {
	pkg    *Package
	base   *url.URL
	secret func(context.Context) (vault.Secret, error)
	way    http.RoundTripper

	mu       sync.Mutex
	checkers map[string]*checker // by tool, made at its first call
}

var _ upstream.Provider = (*Provider)(nil)

// New makes a provider of a package. way is the way out; a round trip is one request, so no redirect is followed. secret
// gives the connection's credential, and is not asked when the package needs none.
func New(pkg *Package, secret func(context.Context) (vault.Secret, error), way http.RoundTripper) (*Provider, error) {
	base, err := parseBase(pkg.BaseURL)
	if err != nil {
		return nil, err
	}
	return &Provider{pkg: pkg, base: base, secret: secret, way: way, checkers: map[string]*checker{}}, nil
}

// Tools implements upstream.Provider.
func (p *Provider) Tools(context.Context) ([]connection.Tool, error) { return p.pkg.Tools() }

// Call implements upstream.Provider.
func (p *Provider) Call(ctx context.Context, c upstream.Call) (upstream.Result, error) {
	o, ok := p.pkg.Operation(c.Tool)
	if !ok {
		return upstream.Result{}, problem.New(problem.NotFound, "API package %s has no tool %s", p.pkg.Name, c.Tool)
	}
	answer, err := p.send(ctx, o, c.Args, c.Effect)
	if err != nil {
		return upstream.Result{}, err
	}
	return answer.result()
}

// Probe implements upstream.Provider: the effect is there when the reading operation that the manifest names finds it.
func (p *Provider) Probe(ctx context.Context, c upstream.Call) (upstream.Result, bool, error) {
	o, ok := p.pkg.Operation(c.Tool)
	if !ok || o.Probe == "" {
		return upstream.Result{}, false, problem.New(problem.Internal, "%s cannot be probed", c.Tool)
	}
	probe, ok := p.pkg.Operation(o.Probe)
	if !ok {
		return upstream.Result{}, false, problem.New(problem.Internal, "%s has a probe that is none of the package's tools", c.Tool)
	}
	given, err := parseArguments(c.Args)
	if err != nil {
		return upstream.Result{}, false, err
	}
	question := value{kind: object}
	for _, m := range given {
		if probe.Input.Properties[m.name] != nil {
			question.members = append(question.members, m)
		}
	}
	answer, err := p.send(ctx, probe, question.appendJSON(nil), "")
	switch {
	case err != nil:
		return upstream.Result{}, false, err
	case answer.Status == http.StatusNotFound || answer.Status == http.StatusGone:
		return upstream.Result{}, false, nil
	case answer.Status >= 300:
		return upstream.Result{}, false, problem.New(problem.Upstream, "the API answered the probe with %d", answer.Status)
	}
	r, err := answer.result()
	return r, err == nil, err
}

// Close implements upstream.Provider. The way out belongs to whoever gave it.
func (p *Provider) Close() error { return nil }

// send makes one request and reads its response. An error is one of ours, of the way, or of a server that failed; what
// the API refused is an answer.
func (p *Provider) send(ctx context.Context, o *Operation, args json.RawMessage, effect string) (Answer, error) {
	r, cred, err := p.request(ctx, o, args, effect)
	if err != nil {
		return Answer{}, err
	}
	resp, err := p.way.RoundTrip(r)
	if err != nil {
		return Answer{}, p.lost(o, cred, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is left to learn from it
	answer, err := receive(resp, cred)
	switch {
	case resp.StatusCode >= 500:
		return Answer{}, p.failed(o, resp, answer)
	case err != nil && !o.Writes:
		return Answer{}, p.lost(o, cred, err)
	case err != nil: // its status came, so it was done or refused; only the words are missing
		answer.Message = "the API's answer broke off"
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		answer.Message = "the API redirects, and redirects are not followed"
	}
	return answer, nil
}

// request builds the request of a call. The credential comes last, so that nothing in it is an argument's.
func (p *Provider) request(ctx context.Context, o *Operation, raw json.RawMessage, effect string) (*http.Request, credential, error) {
	check, err := p.checker(o)
	if err != nil {
		return nil, credential{}, err
	}
	args, err := check.check(raw)
	if err != nil {
		return nil, credential{}, err
	}
	secretQuery := ""
	if p.pkg.Auth.Kind == AuthQuery {
		secretQuery = p.pkg.Auth.Name
	}
	made, err := encode(o, args, secretQuery)
	if err != nil {
		return nil, credential{}, err
	}
	var body io.Reader
	if made.media != "" {
		body = bytes.NewReader(made.body) // which the request can send again on a fresh connection
	}
	r, err := http.NewRequestWithContext(ctx, o.Method, strings.TrimSuffix(p.pkg.BaseURL, "/")+made.target, body)
	if err != nil {
		return nil, credential{}, problem.Wrap(err, problem.Invalid, "the arguments do not make a URL")
	}
	if err := p.inside(r.URL); err != nil {
		return nil, credential{}, err
	}
	for _, h := range made.headers {
		r.Header.Set(h.name, h.value)
	}
	r.Header.Set("Accept", o.Accept)
	r.Header.Set("User-Agent", "execwarden")
	if made.media != "" {
		r.Header.Set("Content-Type", made.media)
	}
	if name := p.pkg.IdempotencyHeader; name != "" && o.Effect == connection.Keyed && effect != "" {
		r.Header.Set(name, effect)
	}
	var secret vault.Secret
	if p.pkg.Auth.Kind != AuthNone {
		if secret, err = p.secret(ctx); err != nil {
			return nil, credential{}, err
		}
	}
	cred, err := newCredential(p.pkg.Auth, secret)
	if err != nil {
		return nil, credential{}, err
	}
	cred.add(r)
	return r, cred, nil
}

// inside is the last check before the credential is added: whatever built the URL, it is of the API's own origin and
// below its base path.
func (p *Provider) inside(u *url.URL) error {
	base := strings.TrimSuffix(p.base.EscapedPath(), "/") + "/"
	if u.Scheme != p.base.Scheme || u.Host != p.base.Host || u.User != nil || u.Fragment != "" ||
		!strings.HasPrefix(u.EscapedPath(), base) || climbs(u.EscapedPath()) {
		return problem.New(problem.Denied, "the request would leave %s", p.pkg.BaseURL)
	}
	return nil
}

func (p *Provider) checker(o *Operation) (*checker, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.checkers[o.Tool]
	if !ok {
		var err error
		if c, err = p.pkg.newChecker(o); err != nil {
			return nil, err
		}
		p.checkers[o.Tool] = c
	}
	return c, nil
}

// lost is the error of a call whose answer did not come. If it writes it may have had its effect, unless the way out
// refused the request before it was sent.
func (p *Provider) lost(o *Operation, c credential, err error) error {
	code := problem.CodeOf(err)
	if cause := err.Error(); c.hide(cause) != cause {
		err = errors.New(c.hide(cause)) // a URL in it holds the credential
	}
	if code == problem.Denied || code == problem.Invalid {
		return problem.Wrap(err, code, "the request to %s was refused on the way out", p.base.Host)
	}
	wrapped := error(problem.Wrap(err, problem.Upstream, "%s did not answer the call", p.base.Host))
	if o.Writes {
		wrapped = upstream.Ambiguously(wrapped)
	}
	return wrapped
}

// failed is the error of a call that the API's server failed at: it may have got half-way.
func (p *Provider) failed(o *Operation, resp *http.Response, a Answer) error {
	text := "the API answered " + resp.Status
	if a.RetryAfter != "" {
		text += ", and to try again after " + a.RetryAfter
	}
	if said := clip(a.Text+string(a.Body), 300); said != "" {
		text += ": " + said
	}
	err := error(problem.New(problem.Upstream, "%s", text))
	if o.Writes {
		err = upstream.Ambiguously(err)
	}
	return err
}
