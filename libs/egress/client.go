package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Client makes the requests that its rules allow. It is an http.RoundTripper. Code that wraps it to add credentials
// adds them to redirects too, and should rather set them on the request.
type Client struct {
	rules []*rule
	http  *http.Client
}

// New makes a client from rules, of which the first that matches a request counts.
func New(rules ...Rule) (*Client, error) { return build(nil, rules) }

// build takes the resolver that tests replace.
func build(resolver *net.Resolver, rules []Rule) (*Client, error) {
	c := &Client{}
	for _, r := range rules {
		read, err := readRule(r)
		if err != nil {
			return nil, err
		}
		read.transport = read.newTransport(cmp.Or(r.Resolver, resolver))
		c.rules = append(c.rules, read)
	}
	c.http = &http.Client{Transport: c, CheckRedirect: c.checkRedirect}
	return c, nil
}

// HTTPClient is the client for libraries that take one. It keeps no cookies and follows redirects by the rules.
func (c *Client) HTTPClient() *http.Client { return c.http }

// CloseIdleConnections lets go of connections that no request uses.
func (c *Client) CloseIdleConnections() {
	for _, r := range c.rules {
		r.transport.CloseIdleConnections()
	}
}

// Allows judges a request by its rule, without making it: nothing is resolved or dialled. Problems: denied, invalid.
func (c *Client) Allows(req *http.Request) error {
	_, _, err := c.prepare(req)
	return err
}

// Do makes a request and follows its redirects. The hops that were made come with every error. The caller closes the
// response's body.
func (c *Client) Do(ctx context.Context, req *http.Request) (*http.Response, []Hop, error) {
	ctx, made := Record(ctx)
	finish := func() {}
	if t, err := inspect(req.URL); err == nil {
		if r := c.ruleFor(t, req.Method); r != nil {
			ctx, finish = r.deadline(ctx)
		}
	}
	resp, err := c.http.Do(req.WithContext(ctx))
	if err != nil {
		err = failure(ctx, err, "the request failed")
		finish()
		return nil, made(), err
	}
	inner := resp.Body.(*body) // RoundTrip made it
	release := inner.done
	inner.done = func() { release(); finish() }
	return resp, made(), nil
}

// RoundTrip makes one request.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	req, done := record(req)
	r, req, err := c.prepare(req)
	if err != nil {
		if req != nil && req.Body != nil {
			req.Body.Close() // as the contract of RoundTripper has it
		}
		done(0)
		return nil, err
	}
	ctx, finish := r.deadline(req.Context())
	resp, err := r.transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		err = failure(ctx, err, req.URL.Host+" does not answer")
		finish()
		done(0)
		return nil, err
	}
	done(resp.StatusCode)
	resp.Body = &body{from: resp.Body, left: r.MaxBytes, most: r.MaxBytes, ctx: ctx, done: finish}
	return resp, nil
}

// Dial opens a TCP connection for a tunnel to a host and port of a rule. The address is judged as that of a request is.
// Problems: denied, unavailable, timeout.
func (c *Client) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	t, err := inspect(&url.URL{Scheme: "https", Host: hostport})
	if err != nil {
		return nil, err
	}
	r := c.ruleFor(t, http.MethodConnect)
	if r == nil {
		return nil, c.unmatched(t, http.MethodConnect)
	}
	conn, err := r.transport.DialContext(ctx, "tcp", net.JoinHostPort(t.host, strconv.Itoa(int(t.port))))
	if err != nil {
		return nil, failure(ctx, err, t.authority()+" does not answer")
	}
	return conn, nil
}

// prepare finds the request's rule and gives the request in the spelling that was judged.
func (c *Client) prepare(req *http.Request) (*rule, *http.Request, error) {
	t, err := inspect(req.URL)
	if err != nil {
		return nil, req, err
	}
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	if err := checkHeaders(req.Header); err != nil {
		return nil, req, err
	}
	if req.Host != "" && req.Host != req.URL.Host {
		return nil, req, problem.New(problem.Denied, "fetch blocked: the Host of a request is its URL's")
	}
	r := c.ruleFor(t, method)
	if r == nil {
		return nil, req, c.unmatched(t, method)
	}
	if a, err := netip.ParseAddr(t.host); err == nil && !r.mayDial(netip.AddrPortFrom(a, t.port)) {
		return nil, req, r.blocked(t.host, netip.AddrPortFrom(a, t.port))
	}
	if r.MaxRequest > 0 && req.Body != nil && req.Body != http.NoBody && (req.ContentLength <= 0 || req.ContentLength > r.MaxRequest) {
		return nil, req, problem.New(problem.TooLarge, "the request's body is larger than %d bytes, or nobody knows its size", r.MaxRequest)
	}
	out := req.Clone(req.Context())
	out.URL.Host, out.URL.Scheme = t.authority(), t.scheme
	out.Host = ""
	// The transport decompresses only what it asked for itself, and what it decompresses is counted.
	out.Header.Del("Accept-Encoding")
	return r, out, nil
}

// RuleOf gives the place of the rule that a request goes by, among those that New took. Problems: denied, when there is
// none.
func (c *Client) RuleOf(req *http.Request) (int, error) {
	t, err := inspect(req.URL)
	if err != nil {
		return 0, err
	}
	r := c.ruleFor(t, req.Method)
	if r == nil {
		return 0, c.unmatched(t, req.Method)
	}
	return slices.Index(c.rules, r), nil
}

func (c *Client) ruleFor(t target, method string) *rule {
	for _, r := range c.rules {
		if r.allows(t, method) {
			return r
		}
	}
	return nil
}

func (c *Client) unmatched(t target, method string) error {
	for _, r := range c.rules {
		if r.denies(t) {
			return problem.New(problem.Denied, "fetch blocked: %s is this deployment's own, or denied by its operator", t.authority())
		}
		if r.covers(t) {
			return problem.New(problem.Denied, "fetch blocked: %s is not allowed for %s; its rule allows %s",
				method, t.authority(), strings.Join(r.Methods, ", "))
		}
	}
	return problem.New(problem.Denied, "fetch blocked: no rule allows %s", t.authority())
}

// blocked names the host and not the address: what an inner name resolves to is nobody's business.
func (r *rule) blocked(host string, to netip.AddrPort) error {
	if r.refuses(to) {
		return problem.New(problem.Denied, "fetch blocked: %s is this deployment's own, or denied by its operator", host)
	}
	return problem.Wrap(&net.AddrError{Err: "not a public address", Addr: to.Addr().String()}, problem.Denied,
		"fetch blocked: %s is not a public address, and its rule has no exception for it", host)
}

// checkRedirect judges a redirect before it is requested; RoundTrip then judges it again like any request.
func (c *Client) checkRedirect(next *http.Request, via []*http.Request) error {
	err := c.judgeRedirect(next, via)
	if err != nil && !errors.Is(err, http.ErrUseLastResponse) {
		_, refused := record(next)
		refused(0)
	}
	return err
}

func (c *Client) judgeRedirect(next *http.Request, via []*http.Request) error {
	first, err := inspect(via[0].URL)
	if err != nil {
		return err
	}
	r := c.ruleFor(first, via[0].Method)
	if r == nil {
		return c.unmatched(first, via[0].Method)
	}
	if r.MaxRedirects < 0 {
		return http.ErrUseLastResponse
	}
	if len(via) > r.MaxRedirects {
		return problem.New(problem.Denied, "fetch blocked: more than %d redirects", r.MaxRedirects)
	}
	to, err := inspect(next.URL)
	if err != nil {
		return err
	}
	from, err := inspect(via[len(via)-1].URL)
	if err != nil {
		return err
	}
	if from.scheme == "https" && to.scheme == "http" {
		return problem.New(problem.Denied, "fetch blocked: a redirect from https to http")
	}
	next.Header.Del("Referer") // a URL's path may be a secret
	if sameOrigin(first, next, via) {
		return nil
	}
	// Once the chain has left, nothing that the caller meant for the first origin goes along, not even on the way back.
	if next.Method != http.MethodGet && next.Method != http.MethodHead {
		return problem.New(problem.Denied, "fetch blocked: a redirect of a %s to another origin", next.Method)
	}
	dropCredentials(next.Header)
	return nil
}

// sameOrigin reports whether the chain never left the origin that it started from.
func sameOrigin(first target, next *http.Request, via []*http.Request) bool {
	for _, req := range append(via[1:len(via):len(via)], next) {
		t, err := inspect(req.URL)
		if err != nil || t.origin() != first.origin() {
			return false
		}
	}
	return true
}

// deadline bounds a request. The returned function has to be called when its response is done with.
func (r *rule) deadline(ctx context.Context) (context.Context, func()) {
	if r.Timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, r.Timeout, errTimeout)
}

func (r *rule) newTransport(resolver *net.Resolver) *http.Transport {
	dialer := &net.Dialer{
		Timeout:  10 * time.Second,
		Resolver: resolver,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || network != "tcp4" && network != "tcp6" {
				return problem.New(problem.Denied, "fetch blocked: not a TCP address")
			}
			if !r.mayDial(to) {
				return r.blocked("the host", to)
			}
			return nil
		},
	}
	t := &http.Transport{
		Proxy:                  nil, // a proxy's address would be the only one that is checked
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    64, // as many as a connection has calls in flight
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if r.RootCAs != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: r.RootCAs}
	}
	return t
}
