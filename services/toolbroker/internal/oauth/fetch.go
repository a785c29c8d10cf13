package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
)

// Bounds of one request to an authorization server.
const (
	maxAnswer      = 256 << 10
	requestTimeout = 10 * time.Second
)

// Connection is what tokens are for.
type Connection struct {
	Tenant id.Tenant
	Agent  id.Agent // whose tokens they are, where each agent has its own; empty: the connection's
	connection.Defined
}

func (c Connection) name() string { return id.Name(c.Connection) }

// newWays makes ways out that are for small answers only and follow no redirect: one could carry a secret off.
func newWays() *egress.Origins {
	return egress.NewOrigins(egress.Rule{Methods: []string{http.MethodGet, http.MethodPost}, MaxBytes: maxAnswer, Timeout: requestTimeout, MaxRedirects: -1})
}

// endpoint checks a URL that somebody else's metadata names: https, or http at an address that the connection itself
// names as private, which localhost may stand for where it is this machine's own. Whether the address may be dialled, the
// way out decides.
func (c Connection) endpoint(what, raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || len(raw) > 2000 {
		return "", problem.New(problem.Upstream, "the %s of connection %s is no URL", what, c.name())
	}
	if u.Scheme == "https" {
		return raw, nil
	}
	if u.Scheme == "http" && c.lists(u) {
		return raw, nil
	}
	return "", problem.New(problem.Denied, "the %s of connection %s, %.200q, is neither https nor at an address that the connection lists as private", what, c.name(), raw)
}

// lists says whether a connection names the address of a URL as private.
func (c Connection) lists(u *url.URL) bool {
	hosts := []string{u.Hostname()}
	if hosts[0] == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	return slices.ContainsFunc(hosts, func(host string) bool {
		at, err := netip.ParseAddrPort(net.JoinHostPort(host, cmp.Or(u.Port(), "80")))
		return err == nil && slices.Contains(c.Private, at.String())
	})
}

// do makes a request and reads its answer whole.
func (c *Client) do(conn Connection, what string, r *http.Request) (int, http.Header, []byte, error) {
	way, err := c.ways.To(r.URL.String(), conn.Private)
	if err != nil {
		return 0, nil, nil, err
	}
	resp, err := way.RoundTrip(r)
	if err != nil {
		code := problem.CodeOf(err)
		return 0, nil, nil, problem.Wrap(err, code, "the %s of connection %s, %.200s: %s", what, conn.name(), r.URL.Host, problem.DetailOf(err).Message)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, nil, problem.Wrap(err, problem.CodeOf(err), "the %s of connection %s: %s", what, conn.name(), problem.DetailOf(err).Message)
	}
	return resp.StatusCode, resp.Header, raw, nil
}

// document reads a metadata document. One that is not there is no error.
func (c *Client) document(ctx context.Context, conn Connection, what, at string, into any) (found bool, err error) {
	if at, err = conn.endpoint(what, at); err != nil {
		return false, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return false, problem.Wrap(err, problem.Upstream, "the %s of connection %s is no URL", what, conn.name())
	}
	r.Header.Set("Accept", "application/json")
	status, _, raw, err := c.do(conn, what, r)
	switch {
	case err != nil:
		return false, err
	case status >= 400 && status < 500:
		return false, nil
	case status != http.StatusOK:
		return false, problem.New(problem.Upstream, "the %s of connection %s is answered with status %d", what, conn.name(), status)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return false, problem.New(problem.Upstream, "the %s of connection %s is not the JSON that it should be", what, conn.name())
	}
	return true, nil
}

// wellKnown puts a well-known name between the host and the path of a URL (RFC 8615), and drops its query.
func wellKnown(raw, name string, path bool) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	at := "/.well-known/" + name
	if path {
		at += strings.TrimSuffix(u.EscapedPath(), "/")
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() + at
}
