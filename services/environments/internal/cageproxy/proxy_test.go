package cageproxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/services/environments/internal/cageproxy"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

// The server of net/http waits half a second after some answers, in a goroutine that nobody can wait for.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// served is a proxy of a policy's targets, and the way to end it.
func served(t *testing.T, l net.Listener, targets ...string) (p *cageproxy.Proxy, address string, end func()) {
	t.Helper()
	policy, err := localpolicy.Parse([]byte("network: targets\ntargets: [" + strings.Join(targets, ", ") + "]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = cageproxy.New(policy.TargetRules(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Serve(ctx, l, "att_1") }()
	end = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(end)
	return p, l.Addr().String(), end
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// raw says something to the proxy, and gives the head of its answer.
func raw(t *testing.T, proxy, text string) (conn net.Conn, status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		return conn, 0, ""
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 1), &http.Request{Method: strings.SplitN(text, " ", 2)[0]})
	if err != nil {
		return conn, 0, ""
	}
	if resp.StatusCode != http.StatusOK {
		got, _ := io.ReadAll(resp.Body)
		body = string(got)
	}
	return conn, resp.StatusCode, body
}

func TestProxy(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %q", r.Method, r.Host, r.URL, r.Header.Get("Proxy-Authorization"))
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := net.SplitHostPort(host)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "sealed") }))
	defer secure.Close()
	p, proxy, end := served(t, listen(t), `"`+host+`"`, `"`+strings.TrimPrefix(secure.URL, "https://")+`"`, "10.1.2.3")
	via, _ := url.Parse("http://" + proxy)
	client := secure.Client()
	transport, _ := client.Transport.(*http.Transport)
	transport.Proxy = http.ProxyURL(via)
	defer transport.CloseIdleConnections()
	for raw, want := range map[string]string{s.URL + "/a?b=c": "GET " + host + ` /a?b=c ""`, secure.URL: "sealed"} {
		resp, err := client.Get(raw)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != want {
			t.Errorf("%s: %q, want %q", raw, body, want)
		}
	}
	if allowed, refused := p.Counts(); allowed != 2 || refused != 0 {
		t.Errorf("%d let out, %d not", allowed, refused)
	}
	// What is not listed, however it is written.
	for name, to := range map[string]string{
		"another port": strings.TrimPrefix(other.URL, "http://"), "metadata": "169.254.169.254:80", "mapped metadata": "[::ffff:169.254.169.254]:80", "a name": "localhost:" + port,
		"decimal": "2130706433:" + port, "octal": "0177.0.0.1:" + port, "short": "127.1:" + port, "another port of an address": "10.1.2.3:22", "a user": "a@" + host, "no port": "10.1.2.3", "nothing": ":" + port, "a path": host + "/x",
	} {
		_, status, body := raw(t, proxy, "CONNECT "+to+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		if status != http.StatusForbidden && status != http.StatusBadRequest || status == http.StatusForbidden && !strings.Contains(body, "rule targets") && !strings.Contains(body, "host and a port") {
			t.Errorf("%s: status %d, %s", name, status, body)
		}
		if name == "no port" || name == "a path" {
			continue
		}
		if _, status, body := raw(t, proxy, "GET http://"+to+"/ HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); status != http.StatusForbidden && status != http.StatusBadRequest && status != http.StatusBadGateway {
			t.Errorf("%s as a plain request: status %d, %s", name, status, body)
		}
	}
	// The Host of a request is its URL's.
	if conn, status, _ := raw(t, proxy, "GET "+s.URL+"/ HTTP/1.1\r\nHost: admin.internal\r\nConnection: close\r\n\r\n"); status != http.StatusOK {
		t.Errorf("status %d", status)
	} else if rest, _ := io.ReadAll(conn); strings.Contains(string(rest), "admin.internal") {
		t.Errorf("another host was named: %s", rest)
	}
	for name, text := range map[string]string{
		"no proxy request": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "https as a plain request": "GET https://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"garbage": "\x16\x03\x01\x02\x00\r\n\r\n", "a huge head": "GET http://" + host + "/ HTTP/1.1\r\nA: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"two lengths": "POST http://" + host + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	} {
		if _, status, _ := raw(t, proxy, text); status == http.StatusOK {
			t.Errorf("%s is answered", name)
		}
	}
	// A tunnel carries bytes both ways to their end, and ends with the proxy.
	tunnel, status, _ := raw(t, proxy, "CONNECT "+host+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	fmt.Fprintf(tunnel, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	if resp, err := http.ReadResponse(bufio.NewReader(tunnel), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("through the tunnel: %v", err)
	}
	end()
	if rest, err := io.ReadAll(tunnel); err == nil && len(rest) > 1<<10 {
		t.Error("a tunnel outlives its proxy")
	}
	if _, refused := p.Counts(); refused == 0 {
		t.Error("no refusal was counted")
	}
}

// busy is a listener that has no room at first.
type busy struct {
	net.Listener
	times int
}

func (b *busy) Accept() (net.Conn, error) {
	if b.times > 0 {
		b.times--
		return nil, problem.New(problem.Busy, "64 connections are open")
	}
	return b.Listener.Accept()
}

// No room for one more connection is no reason to take none any more.
func TestFull(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	_, proxy, _ := served(t, &busy{listen(t), 3}, `"`+host+`"`)
	if _, status, _ := raw(t, proxy, "GET "+s.URL+"/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}
