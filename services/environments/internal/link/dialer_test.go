package link

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

// proxy is a CONNECT proxy (RFC 9110, section 9.3.6) that resolves every name to one server. User, when set, has to be given.
type proxy struct {
	net.Listener
	to, user string
	answer   string // in place of a tunnel
	working  sync.WaitGroup

	mu   sync.Mutex
	seen []string
}

func newProxy(t *testing.T, to, user, answer string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to, user: user, answer: answer}
	p.working.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.working.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); p.working.Wait() })
	return p
}

func (p *proxy) serve(conn net.Conn) {
	defer conn.Close()
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	p.mu.Lock()
	p.seen = append(p.seen, r.Method+" "+r.Host)
	p.mu.Unlock()
	if p.answer != "" {
		_, _ = io.WriteString(conn, p.answer)
		return
	}
	if p.user != "" && r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(p.user)) {
		_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	}
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer to.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	p.working.Go(func() { _, _ = io.Copy(conn, to); _ = conn.Close() })
	_, _ = io.Copy(to, conn)
}

func (p *proxy) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

// echo answers a line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var working sync.WaitGroup
	working.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			working.Go(func() { defer conn.Close(); _, _ = io.Copy(conn, conn) })
		}
	})
	t.Cleanup(func() { l.Close(); working.Wait() })
	return l.Addr().String()
}

// The connector goes the way that the environment's variables name, and gets through to the server's name at the proxy.
func TestProxy(t *testing.T) {
	server := echo(t)
	open, locked := newProxy(t, server, "", ""), newProxy(t, server, "connector:pass word", "")
	for name, c := range map[string]struct {
		env    map[string]string
		server string
		via    *proxy
		code   problem.Code
		words  string
	}{
		"plain":                       {env: map[string]string{"HTTP_PROXY": "http://" + open.Addr().String()}, server: "http://warden.example:8080", via: open},
		"for https":                   {env: map[string]string{"HTTPS_PROXY": "http://" + open.Addr().String()}, server: "https://warden.example", via: open},
		"in small letters":            {env: map[string]string{"https_proxy": open.Addr().String()}, server: "https://warden.example", via: open},
		"with a password":             {env: map[string]string{"HTTPS_PROXY": "http://connector:pass%20word@" + locked.Addr().String()}, server: "https://warden.example", via: locked},
		"without its password":        {env: map[string]string{"HTTPS_PROXY": "http://" + locked.Addr().String()}, server: "https://warden.example", via: locked, code: problem.Unavailable, words: "407"},
		"with another password":       {env: map[string]string{"HTTPS_PROXY": "http://connector:guess@" + locked.Addr().String()}, server: "https://warden.example", via: locked, code: problem.Unavailable, words: "407"},
		"of the other scheme":         {env: map[string]string{"HTTPS_PROXY": "http://127.0.0.1:1"}, server: "http://" + server},
		"not for this server":         {env: map[string]string{"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "10.0.0.0/8,127.0.0.1"}, server: "http://" + server},
		"that is not there":           {env: map[string]string{"HTTPS_PROXY": "http://127.0.0.1:1"}, server: "https://warden.example", code: problem.Unavailable, words: "proxy 127.0.0.1:1"},
		"that is no URL":              {env: map[string]string{"HTTPS_PROXY": "a proxy"}, server: "https://warden.example", code: problem.Invalid},
		"that refuses":                {env: map[string]string{"HTTPS_PROXY": "http://" + newProxy(t, "", "", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").Addr().String()}, server: "https://warden.example", code: problem.Unavailable, words: "403"},
		"that speaks before its turn": {env: map[string]string{"HTTPS_PROXY": "http://" + newProxy(t, "", "", "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n").Addr().String()}, server: "https://warden.example", code: problem.Unavailable},
		"that answers garbage":        {env: map[string]string{"HTTPS_PROXY": "http://" + newProxy(t, "", "", "\x16\x03\x01").Addr().String()}, server: "https://warden.example", code: problem.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "REQUEST_METHOD"} {
				t.Setenv(v, c.env[v])
			}
			address := strings.TrimPrefix(strings.TrimPrefix(c.server, "http://"), "https://")
			if !strings.Contains(address, ":") {
				address += ":443"
			}
			before := len(open.asked()) + len(locked.asked())
			conn, err := dialer{c.server}.Dial("tcp", address)
			if c.code != "" {
				if problem.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "guess") {
					t.Fatalf("%v (%s)", err, problem.CodeOf(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintln(conn, "through")
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "through\n" {
				t.Errorf("%q, %v", line, err)
			}
			if c.via == nil {
				if len(open.asked())+len(locked.asked()) != before {
					t.Error("a proxy was asked")
				}
				return
			}
			if seen := c.via.asked(); seen[len(seen)-1] != "CONNECT "+address {
				t.Errorf("the proxy was asked for %q", seen)
			}
		})
	}
}
