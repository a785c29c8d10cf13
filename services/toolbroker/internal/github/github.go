// Package github is the GitHub connection, over go-github v62 with that version's known holes closed: arguments are
// validated before a path is built from them; each request is held against the routes that its tool declares, in the one
// repository that the call was admitted for; the credential goes to the connection's own host only; and GitHub's limits
// are honoured in all the shapes in which it states them.
//
// A request passes, from the tool outwards: go-github, guarded (may this tool do that), limiter (not now, or one at a
// time), authorized (with which token), and the way out.
package github

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Config is what a connection needs.
type Config struct {
	// URL of the API, such as https://api.github.com or https://github.example.com/api/v3. Required.
	URL string
	// Credential is a token, or an App's id and private key as JSON; it is read anew for each request. Required.
	Credential func(context.Context) (vault.Secret, error)
	// Transport is the way out to URL. Required.
	Transport http.RoundTripper
	// GitURL of the git server. Defaults to what GitURL derives from URL.
	GitURL string
	// Git is the way out to the git server. Defaults to none: nothing is lent to machines.
	Git http.RoundTripper
	// Files is the way out to the hosts that GitHub keeps logs on, without any credential. Defaults to none.
	Files http.RoundTripper
	// WriteEvery is the least time from one writing request to the next. Defaults to 1 s, which GitHub asks for.
	WriteEvery time.Duration
	// WriteQueue is how many writing requests may wait. Defaults to 32; more are refused as busy.
	WriteQueue int
	// WaitAtMost is how long a request waits for a limit to pass before it is refused. Defaults to 20 s.
	WaitAtMost time.Duration
}

// WithDefaults fills what is zero.
func (c Config) WithDefaults() Config {
	if c.WriteEvery == 0 {
		c.WriteEvery = time.Second
	}
	if c.WriteQueue == 0 {
		c.WriteQueue = 32
	}
	if c.WaitAtMost == 0 {
		c.WaitAtMost = 20 * time.Second
	}
	return c
}

// Provider is one GitHub connection.
type Provider struct {
	client      *github.Client
	credentials *credentials
	files       http.RoundTripper
	git         *url.URL
	gitOut      http.RoundTripper
}

// New makes a provider.
func New(cfg Config) (*Provider, error) {
	cfg = cfg.WithDefaults()
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, problem.New(problem.Invalid, "the URL of a GitHub connection is its API's, such as https://api.github.com")
	}
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
	}
	creds := newCredentials(u, cfg.Credential, cfg.Transport)
	out := &limiter{next: &authorized{credentials: creds, next: cfg.Transport}, most: cfg.WaitAtMost, writes: newQueue(cfg.WriteEvery, cfg.WriteQueue)}
	client := github.NewClient(&http.Client{
		Transport:     &guarded{base: u, next: out},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	client.BaseURL = u
	git, err := GitURL(cfg.URL, cfg.GitURL)
	if err != nil {
		return nil, err
	}
	return &Provider{client: client, credentials: creds, files: cfg.Files, git: git, gitOut: cfg.Git}, nil
}

// Tools implements upstream.Provider.
func (p *Provider) Tools(context.Context) ([]connection.Tool, error) {
	out := make([]connection.Tool, 0, len(tools))
	for _, t := range tools {
		out = append(out, connection.Tool{Name: t.name, Description: t.about, Schema: schemaOf(t.required, t.optional), Effect: t.effect, Writes: t.effect != connection.Pure})
	}
	if p.gitOut != nil {
		out = append(out, lentTools()...)
	}
	return out, nil
}

// Call implements upstream.Provider.
func (p *Provider) Call(ctx context.Context, c upstream.Call) (upstream.Result, error) {
	t, args, err := read(c)
	if err != nil {
		return upstream.Result{}, err
	}
	s := t.scope(args)
	answer, err := t.call(within(ctx, s), p.session(c), args)
	if err != nil {
		return failed(err, s.sent.Load())
	}
	raw, err := written(answer)
	if err != nil {
		return upstream.Result{}, problem.Wrap(err, problem.Internal, "GitHub's answer cannot be written")
	}
	return upstream.Result{Content: raw}, nil
}

// Probe implements upstream.Provider.
func (p *Provider) Probe(ctx context.Context, c upstream.Call) (upstream.Result, bool, error) {
	t, args, err := read(c)
	if err != nil {
		return upstream.Result{}, false, nil // nothing was sent for such arguments, and Call says what is wrong with them
	}
	if t.probe == nil {
		return upstream.Result{}, false, problem.New(problem.Internal, "%s cannot be probed", c.Tool)
	}
	answer, found, err := t.probe(within(ctx, t.scope(args)), p.session(c), args)
	if refusedWith(err, http.StatusNotFound, http.StatusGone) != nil {
		return upstream.Result{}, false, nil // what the effect would be on is not there: the call is refused too
	}
	if err != nil || !found {
		return upstream.Result{}, false, err
	}
	raw, err := written(answer)
	return upstream.Result{Content: raw}, err == nil, err
}

// Renounce implements upstream.Renouncer: installation tokens are shared by the grants of a tenant, so none can be told
// apart as one grant's.
func (p *Provider) Renounce() { p.credentials.renounce() }

// Close implements upstream.Provider. Installation tokens are revoked: they would outlive the connection.
func (p *Provider) Close() error {
	p.credentials.close()
	if c, ok := p.files.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
	return nil
}

// session is what a tool works with during one call.
type session struct {
	*github.Client
	provider *Provider
	effect   string
}

func (p *Provider) session(c upstream.Call) session { return session{p.client, p, c.Effect} }

func (s session) marker() string { return marker(s.effect) }

// read finds the tool of a call and reads its arguments.
func read(c upstream.Call) (tool, arguments, error) {
	for _, t := range tools {
		if t.name == c.Tool {
			args, err := parse(c.Args, t.required, t.optional)
			return t, args, err
		}
	}
	return tool{}, arguments{}, problem.New(problem.NotFound, "the GitHub connection has no tool %s", c.Tool)
}
