package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/execwarden/execwarden/libs/problem"
)

// dialWithin is how long one attempt to reach the server may take.
const dialWithin = 10 * time.Second

// dialer goes through the HTTP proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name, by CONNECT (RFC 9110, section 9.3.6).
type dialer struct{ server string }

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
	defer cancel()
	u, err := url.Parse(d.server)
	if err != nil {
		return nil, err
	}
	via, err := httpproxy.FromEnvironment().ProxyFunc()(u)
	if err != nil || via != nil && via.Hostname() == "" {
		return nil, problem.Wrap(err, problem.Invalid, "the proxy that the environment names is no URL")
	}
	var direct net.Dialer
	if via == nil {
		return direct.DialContext(ctx, network, address)
	}
	conn, err := direct.DialContext(ctx, "tcp", proxyAddress(via))
	if err != nil {
		return nil, problem.Wrap(err, problem.Unavailable, "the proxy %s cannot be reached", via.Host)
	}
	if via.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{ServerName: via.Hostname()})
	}
	if err := tunnel(ctx, conn, via, address); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func proxyAddress(via *url.URL) string {
	if via.Port() != "" {
		return via.Host
	}
	if via.Scheme == "https" {
		return net.JoinHostPort(via.Hostname(), "443")
	}
	return net.JoinHostPort(via.Hostname(), "80")
}

func tunnel(ctx context.Context, conn net.Conn, via *url.URL, address string) error {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	ask := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if user := via.User; user != nil {
		password, _ := user.Password()
		ask.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := ask.Write(conn); err != nil {
		return problem.Wrap(err, problem.Unavailable, "the proxy %s went away", via.Host)
	}
	// One byte at a time would be needed to be sure that nothing of the tunnel is read; a server speaks only after the
	// client here (TLS, or the WebSocket's request), so what is buffered is the proxy's answer alone.
	reader := bufio.NewReaderSize(conn, 4096)
	resp, err := http.ReadResponse(reader, ask)
	if err != nil {
		return problem.Wrap(err, problem.Unavailable, "the proxy %s did not answer", via.Host)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || reader.Buffered() > 0 {
		return problem.New(problem.Unavailable, "the proxy %s answered %s to CONNECT", via.Host, resp.Status)
	}
	return conn.SetDeadline(time.Time{})
}
