package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on loopback and gives its host:port.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func client(t *testing.T, resolver *net.Resolver, rules ...Rule) *Client {
	t.Helper()
	c, err := build(resolver, rules)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// local allows exactly these servers of a test.
func local(servers ...string) Rule {
	return Rule{Hosts: servers, AllowPrivate: servers, Methods: []string{"*"}}
}

func get(t *testing.T, c *Client, rawURL string) (string, []Hop, error) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, rawURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, c, req)
}

func do(t *testing.T, c *Client, req *http.Request) (string, []Hop, error) {
	t.Helper()
	resp, hops, err := c.Do(t.Context(), req)
	if err != nil {
		return "", hops, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), hops, err
}

func TestDo(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Method+" "+r.URL.Path) })
	got, hops, err := get(t, client(t, nil, local(server)), "http://"+server+"/x")
	if err != nil || got != "GET /x" {
		t.Fatalf("%q, %v", got, err)
	}
	if len(hops) != 1 || hops[0] != (Hop{URL: "http://" + server + "/x", Status: 200, Addr: server}) {
		t.Errorf("hops %+v", hops)
	}
}

func TestBlockedURLs(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := net.SplitHostPort(server)
	c := client(t, nil, Rule{Hosts: []string{"*", "*:" + port}})
	for _, u := range []string{
		"http://169.254.169.254/latest/meta-data/", "http://[::ffff:a9fe:a9fe]/", "http://[64:ff9b::a9fe:a9fe]/",
		"http://[2002:a9fe:a9fe::1]/", "http://100.100.100.200/", "http://0.0.0.0:" + port + "/", "http://[::]:" + port + "/",
		"http://127.0.0.1:" + port + "/", "http://localhost:" + port + "/", "http://[::1]:" + port + "/", "http://①②⑦.⓪.⓪.①:" + port + "/",
		"http://ok@127.0.0.1:" + port + "/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://127.1:" + port + "/",
		"http://2130706433:" + port + "/", "http://168.63.129.16/", "http://[fd00:ec2::254]/", "http://10.0.0.1:22/",
	} {
		parsed, err := url.Parse(u)
		if err != nil {
			continue // refused even earlier
		}
		_, _, err = do(t, c, &http.Request{Method: http.MethodGet, URL: parsed, Header: http.Header{}})
		if problem.CodeOf(err) != problem.Denied {
			t.Errorf("%s: %v", u, err)
		}
		if strings.Contains(problem.DetailOf(err).Message, "127.0.0.1:") && !strings.Contains(u, "127.0.0.1") {
			t.Errorf("%s: the message says what the name resolves to: %v", u, problem.DetailOf(err).Message)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("the server was asked %d times", asked.Load())
	}
}

func TestRedirects(t *testing.T) {
	var other string
	inner := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/back" {
			http.Redirect(w, r, "http://"+other+"/show", http.StatusFound)
			return
		}
		show(w, r)
	})
	outer := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/same":
			http.Redirect(w, r, "/show", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://"+inner+"/show", http.StatusFound)
		case "/around":
			http.Redirect(w, r, "http://"+inner+"/back", http.StatusFound)
		case "/away307":
			http.Redirect(w, r, "http://"+inner+"/show", http.StatusTemporaryRedirect)
		case "/user":
			http.Redirect(w, r, "http://u:p@"+inner+"/show", http.StatusFound)
		default:
			show(w, r)
		}
	})
	other = outer
	c := client(t, nil, local(outer, inner))
	request := func(method, path string) *http.Request {
		req, err := http.NewRequest(method, "http://"+outer+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret")
		req.Header.Set("X-Api-Key", "secret")
		req.Header.Set("Accept", "text/plain")
		return req
	}
	for _, path := range []string{"/metadata", "/file", "/loop", "/user"} {
		_, hops, err := do(t, c, request(http.MethodGet, path))
		if problem.CodeOf(err) != problem.Denied {
			t.Errorf("%s: %v", path, err)
		}
		if len(hops) == 0 || hops[0].Status != http.StatusFound {
			t.Errorf("%s: hops %+v", path, hops)
		}
	}
	if got, _, err := do(t, c, request(http.MethodGet, "/same")); err != nil || got != "GET Bearer secret secret text/plain " {
		t.Errorf("on the same origin: %q, %v", got, err)
	}
	for _, path := range []string{"/away", "/around"} {
		if got, hops, err := do(t, c, request(http.MethodGet, path)); err != nil || got != "GET   text/plain " {
			t.Errorf("%s: %q, %v, %+v", path, got, err, hops)
		}
	}
	if _, _, err := do(t, c, request(http.MethodPost, "/away307")); problem.CodeOf(err) != problem.Denied {
		t.Errorf("a POST that is sent elsewhere: %v", err)
	}
	none := local(outer)
	none.MaxRedirects = -1
	resp, hops, err := client(t, nil, none).Do(t.Context(), request(http.MethodGet, "/metadata"))
	if err != nil || resp.StatusCode != http.StatusFound || len(hops) != 1 {
		t.Fatalf("without redirects: %v, %+v", err, hops)
	}
	resp.Body.Close()
}

func show(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, strings.Join([]string{r.Method, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"), r.Header.Get("Accept"), r.Header.Get("Referer")}, " "))
}

func TestRedirectFromTLS(t *testing.T) {
	plain := serve(t, show)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+plain, http.StatusFound)
	}))
	t.Cleanup(secure.Close)
	host := strings.TrimPrefix(secure.URL, "https://")
	rule := local(host, plain)
	rule.RootCAs = secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if _, _, err := get(t, client(t, nil, rule), secure.URL); problem.CodeOf(err) != problem.Denied {
		t.Errorf("from https to http: %v", err)
	}
	rule.RootCAs = nil
	if _, _, err := get(t, client(t, nil, rule), secure.URL); problem.CodeOf(err) != problem.Unavailable {
		t.Errorf("an unknown certificate: %v", err)
	}
}

func TestMethodsAndHeaders(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { asked.Add(1) })
	rule := local(server)
	rule.Methods = []string{"GET"}
	c := client(t, nil, rule)
	if _, _, err := do(t, c, &http.Request{Method: http.MethodDelete, URL: &url.URL{Scheme: "http", Host: server}, Header: http.Header{}}); problem.CodeOf(err) != problem.Denied ||
		!strings.Contains(err.Error(), "DELETE") {
		t.Errorf("a method outside the rule: %v", err)
	}
	for _, h := range []http.Header{
		{"X": {"a\r\nHost: x"}}, {"X": {"a\nb"}}, {"X": {"a\x00b"}}, {"X\r\nY": {"a"}}, {"": {"a"}}, {"A b": {"a"}},
		{"Host": {"x"}}, {"host": {"x"}}, {"Connection": {"close"}}, {"Content-Length": {"1"}}, {"Transfer-Encoding": {"chunked"}},
		{"te": {"x"}}, {"Upgrade": {"h2c"}}, {"Proxy-Authorization": {"x"}}, {"X-Forwarded-For": {"127.0.0.1"}}, {"Forwarded": {"x"}},
	} {
		_, _, err := do(t, c, &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: server}, Header: h})
		if code := problem.CodeOf(err); code != problem.Denied && code != problem.Invalid {
			t.Errorf("%q: %v", h, err)
		}
	}
	req, _ := http.NewRequest(http.MethodGet, "http://"+server, nil)
	req.Host = "internal"
	if _, _, err := do(t, c, req); problem.CodeOf(err) != problem.Denied {
		t.Errorf("another Host: %v", err)
	}
	if asked.Load() != 0 {
		t.Errorf("the server was asked %d times", asked.Load())
	}
}

// TestRebinding: a name that is public when asked first and loopback after gains nothing, since the address that is
// dialled is the one that is judged.
func TestRebinding(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := net.SplitHostPort(server)
	resolver, lookups := fakeDNS(t, "1.2.3.4", "127.0.0.1")
	if first, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.test"); err != nil || first[0] != netip.MustParseAddr("1.2.3.4") {
		t.Fatal(first, err)
	}
	c := client(t, resolver, Rule{Hosts: []string{"rebind.test:" + port}})
	for range 3 {
		if _, _, err := get(t, c, "http://rebind.test:"+port+"/"); problem.CodeOf(err) != problem.Denied {
			t.Errorf("got %v", err)
		}
	}
	if asked.Load() != 0 || lookups.Load() < 4 {
		t.Errorf("asked %d times after %d look-ups", asked.Load(), lookups.Load())
	}
	allowed := client(t, resolver, Rule{Hosts: []string{"rebind.test:" + port}, AllowPrivate: []string{server}})
	if _, hops, err := get(t, allowed, "http://rebind.test:"+port+"/"); err != nil || hops[0].Addr != server {
		t.Errorf("with an exception: %v, %+v", err, hops)
	}
}

// fakeDNS answers with each address once, and with the last for ever.
func fakeDNS(t *testing.T, answers ...string) (*net.Resolver, *atomic.Int32) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	lookups := new(atomic.Int32)
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				i := min(int(lookups.Add(1))-1, len(answers)-1)
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(answers[i]).As4()},
				}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}, lookups
}

func TestGzipBomb(t *testing.T) {
	// 1 GiB of zeros in members of 1 MiB: about a megabyte on the wire.
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	_, _ = z.Write(make([]byte, 1<<20))
	_ = z.Close()
	bomb := bytes.Repeat(member.Bytes(), 1<<10)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	})
	rule := local(server)
	rule.MaxBytes = 1 << 20
	c := client(t, nil, rule)
	req, _ := http.NewRequest(http.MethodGet, "http://"+server, nil)
	req.Header.Set("Accept-Encoding", "gzip") // which would leave the decompression to the caller

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, _, err := c.Do(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	runtime.ReadMemStats(&after)
	if problem.CodeOf(err) != problem.TooLarge || n != rule.MaxBytes {
		t.Errorf("%d bytes, %v", n, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

func TestSizeLimitIsExact(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), len(r.URL.Path)))
	})
	rule := local(server)
	rule.MaxBytes = 10
	c := client(t, nil, rule)
	if got, _, err := get(t, c, "http://"+server+"/123456789"); err != nil || len(got) != 10 {
		t.Errorf("at the limit: %q, %v", got, err)
	}
	if got, _, err := get(t, c, "http://"+server+"/1234567890"); problem.CodeOf(err) != problem.TooLarge || len(got) != 10 {
		t.Errorf("over the limit: %q, %v", got, err)
	}
	rule.MaxBytes = -1
	if got, _, err := get(t, client(t, nil, rule), "http://"+server+"/1234567890"); err != nil || len(got) != 11 {
		t.Errorf("without a limit: %q, %v", got, err)
	}
}

func TestTimeout(t *testing.T) {
	stop := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
		}
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(stop) })
	rule := local(server)
	rule.Timeout = 100 * time.Millisecond
	c := client(t, nil, rule)
	for _, path := range []string{"/head", "/body"} {
		if _, _, err := get(t, c, "http://"+server+path); problem.CodeOf(err) != problem.Timeout {
			t.Errorf("%s: %v", path, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, _ := http.NewRequest(http.MethodGet, "http://"+server, nil)
	if _, _, err := c.Do(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestHTTPClient is the form that libraries take: they see the same refusals, and the context records.
func TestHTTPClient(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/go" {
			http.Redirect(w, r, "http://10.0.0.1/", http.StatusFound)
			return
		}
		io.WriteString(w, "ok")
	})
	c := client(t, nil, local(server)).HTTPClient()
	ctx, hops := Record(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+"/", nil)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	req, _ = http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+"/go", nil)
	if _, err := c.Do(req); problem.CodeOf(err) != problem.Denied {
		t.Errorf("a redirect inwards: %v", err)
	}
	if string(text) != "ok" || len(hops()) != 3 || hops()[2].Status != 0 || hops()[2].URL != "http://10.0.0.1/" {
		t.Errorf("%q, hops %+v", text, hops())
	}
}
