package privatehttp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/services/environments/internal/localpolicy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// list reads targets as a policy has them.
func list(t *testing.T, yaml string) []localpolicy.PrivateHTTP {
	t.Helper()
	p, err := localpolicy.Parse([]byte("private_http:\n" + yaml))
	if err != nil {
		t.Fatal(err)
	}
	return p.PrivateHTTP
}

func door(t *testing.T, names *net.Resolver, yaml string) *Door {
	t.Helper()
	d, err := open(list(t, yaml), names, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func served(t *testing.T, h http.HandlerFunc) (s *httptest.Server, host string) {
	t.Helper()
	s = httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s, s.Listener.Addr().String()
}

// dns is a resolver whose every answer is the next of a list.
func dns(t *testing.T, answers ...string) (*net.Resolver, *atomic.Int64) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { pc.Close(); <-done })
	asked := &atomic.Int64{}
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				i := asked.Add(1) - 1
				ip := net.ParseIP(answers[min(int(i), len(answers)-1)]).To4()
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte(ip)}}}
			}
			raw, err := m.Pack()
			if err == nil {
				_, _ = pc.WriteTo(raw, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}, asked
}

func wantCode(t *testing.T, what string, err error, code problem.Code, words ...string) {
	t.Helper()
	if problem.CodeOf(err) != code {
		t.Errorf("%s: %v (%s), not %s", what, err, problem.CodeOf(err), code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", what, err, w)
		}
	}
}

func TestAsked(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // no ambient proxy is asked
	_, host := served(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Set-Cookie", "session=secret")
		w.Header().Set("X-Seen", r.Header.Get("X-Word"))
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL, body, r.Header.Get("Authorization"))
	})
	d := door(t, nil, "  - target: "+host+"\n    methods: [GET, HEAD, POST]\n    credentials: true\n")
	got, err := d.Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/a?b=c#d", Headers: map[string]string{"X-Word": "hello", "Authorization": "Bearer x"}})
	if err != nil || got.Status != 200 || got.Text != "GET /a?b=c  Bearer x" || got.Headers["X-Seen"] != "hello" || got.Address != host || got.Truncated || got.Headers["Set-Cookie"] == "" {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = d.Send(t.Context(), machine.HTTPArgs{Method: "POST", URL: "http://" + host + "/a", Body: "text"})
	if err != nil || got.Text != "POST /a text " {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = d.Get(t.Context(), machine.HTTPArgs{Method: "HEAD", URL: "http://" + host + "/a"}); err != nil || got.Status != 200 || got.Text != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = d.Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/a", Max: 3}); err != nil || got.Text != "GET" || !got.Truncated {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = door(t, nil, "  - target: "+host+"\n").Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/a"})
	if err != nil || got.Headers["Set-Cookie"] != "" {
		t.Errorf("a cookie is shown to who has no credentials: %+v, %v", got, err)
	}
}

// What is not listed is not asked, however it is written.
func TestNotListed(t *testing.T) {
	asked := atomic.Int64{}
	_, host := served(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := net.SplitHostPort(host)
	d := door(t, nil, "  - target: http://"+host+"/api/\n  - target: 10.1.2.3\n")
	for name, raw := range map[string]string{
		"another path": "http://" + host + "/", "a path beside": "http://" + host + "/apis", "dots": "http://" + host + "/api/../admin",
		"escaped dots": "http://" + host + "/api/%2e%2e/admin", "an escaped slash": "http://" + host + "/api/..%2fadmin", "dots twice escaped": "http://" + host + "/api/%252e%252e/admin",
		"dots with a parameter": "http://" + host + "/api/..;/admin", "a backslash": "http://" + host + `/api/..\admin`,
		"another scheme": "https://" + host + "/api/", "no HTTP": "ftp://" + host + "/api/", "a file": "file:///etc/passwd", "no scheme": "//" + host + "/api/",
		"a user": "http://10.1.2.3@" + host + "/api/", "a user of the list": "http://" + host + "@169.254.169.254/api/", "another port": "http://127.0.0.1:1/api/",
		"decimal": "http://2130706433:" + port + "/api/", "octal": "http://0177.0.0.1:" + port + "/api/", "hex": "http://0x7f.1:" + port + "/api/", "short": "http://127.1:" + port + "/api/",
		"all zeros": "http://0.0.0.0:" + port + "/api/", "six": "http://[::1]:" + port + "/api/", "a zone": "http://[fe80::1%25eth0]/", "metadata": "http://169.254.169.254/latest/meta-data/",
		"mapped metadata": "http://[::ffff:169.254.169.254]/", "another address": "http://10.1.2.4/", "another port of an address": "http://10.1.2.3:8080/", "a name": "http://localhost:" + port + "/api/",
	} {
		_, err := d.Get(t.Context(), machine.HTTPArgs{URL: raw})
		wantCode(t, name, err, problem.Denied, "the machine's policy, rule private_http")
	}
	for name, a := range map[string]machine.HTTPArgs{
		"Host": {Headers: map[string]string{"Host": "admin.internal"}}, "a proxy's word": {Headers: map[string]string{"X-Forwarded-For": "127.0.0.1"}},
		"Authorization": {Headers: map[string]string{"authorization": "Bearer x"}}, "a cookie": {Headers: map[string]string{"Cookie": "a=b"}},
		"a key": {Headers: map[string]string{"X-Api-Key": "x"}}, "a vendor's token": {Headers: map[string]string{"PRIVATE-TOKEN": "x"}},
	} {
		a.URL = "http://" + host + "/api/x"
		_, err := d.Get(t.Context(), a)
		wantCode(t, name, err, problem.Denied, "rule private_http")
	}
	_, err := d.Send(t.Context(), machine.HTTPArgs{Method: "POST", URL: "http://" + host + "/api/x"})
	wantCode(t, "a method", err, problem.Denied, "POST", "GET, HEAD")
	for name, a := range map[string]machine.HTTPArgs{
		"a line break": {Headers: map[string]string{"A": "b\r\nC: d"}}, "no header": {Headers: map[string]string{"a b": "c"}}, "a body": {Body: "x"},
		"POST as a read": {Method: "POST"}, "CONNECT": {Method: "CONNECT"}, "much time": {Timeout: 121}, "much": {Max: 1 << 30}, "less than nothing": {Max: -1},
	} {
		a.URL = "http://" + host + "/api/x"
		_, err := d.Get(t.Context(), a)
		wantCode(t, name, err, problem.Invalid)
	}
	_, err = d.Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/api/x", Headers: map[string]string{"A": strings.Repeat("x", maxHeaderBytes)}})
	wantCode(t, "huge headers", err, problem.TooLarge)
	if asked.Load() != 0 {
		t.Errorf("%d requests arrived", asked.Load())
	}
	if got, err := d.Get(t.Context(), machine.HTTPArgs{URL: "http://[::ffff:127.0.0.1]:" + port + "/api/x"}); err != nil || got.Address != host {
		t.Errorf("a mapped address is the one that it stands for: %+v, %v", got, err)
	}
}

// What a name resolves to is looked at where it is dialled: another answer the second time gains nothing.
func TestNames(t *testing.T) {
	asked := atomic.Int64{}
	_, host := served(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := net.SplitHostPort(host)
	for _, to := range []string{"127.0.0.1", "169.254.169.254", "0.0.0.0", "168.63.129.16", "100.100.100.200", "224.0.0.1", "127.9.9.9", "255.255.255.255"} {
		names, n := dns(t, to)
		_, err := door(t, names, "  - target: svc.example:"+port+"\n").Get(t.Context(), machine.HTTPArgs{URL: "http://svc.example:" + port + "/"})
		wantCode(t, to, err, problem.Denied, "rule private_http", "never asked")
		if strings.Contains(err.Error(), to) {
			t.Errorf("what an inner name resolves to is told: %v", err)
		}
		if n.Load() != 1 {
			t.Errorf("%s is resolved %d times", to, n.Load())
		}
	}
	// The machine's own address elsewhere than on loopback is itself still, unless the policy has the very address.
	own, err := egress.MachineAddresses()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range own {
		a := at.Addr()
		if !a.Is4() || !at.IsSingleIP() || a.IsLoopback() || a.IsLinkLocalUnicast() {
			continue
		}
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		asked := atomic.Int64{}
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })}}
		server.Start()
		defer server.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		names, _ := dns(t, a.String())
		_, err = door(t, names, "  - target: svc.example:"+port+"\n").Get(t.Context(), machine.HTTPArgs{URL: "http://svc.example:" + port + "/"})
		wantCode(t, a.String(), err, problem.Denied, "rule private_http", "never asked")
		if _, err := door(t, nil, "  - target: "+l.Addr().String()+"\n").Get(t.Context(), machine.HTTPArgs{URL: "http://" + l.Addr().String() + "/"}); err != nil || asked.Load() != 1 {
			t.Errorf("%s, named: %v, asked %d times", a, err, asked.Load())
		}
	}
	// The first answer is harmless and does not listen; the second is this machine, and is never asked for.
	names, n := dns(t, "192.0.2.1", "127.0.0.1")
	_, err = door(t, names, "  - target: svc.example:"+port+"\n").Get(t.Context(), machine.HTTPArgs{URL: "http://svc.example:" + port + "/", Timeout: 1})
	if err == nil || n.Load() != 1 || asked.Load() != 0 {
		t.Errorf("%v, resolved %d times, asked %d times", err, n.Load(), asked.Load())
	}
}

func TestRedirects(t *testing.T) {
	stolen := atomic.Int64{}
	_, other := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Word") != "" {
			stolen.Add(1)
		}
		if r.URL.Path == "/back" {
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		}
	})
	_, unlisted := served(t, func(http.ResponseWriter, *http.Request) { stolen.Add(1) })
	_, host := served(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/to":
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/garbled":
			w.Header()["Location"] = []string{"http://[::1"}
			w.WriteHeader(http.StatusFound)
		default:
			fmt.Fprintf(w, "%s %s", r.URL.Path, r.Header.Get("Authorization"))
		}
	})
	d := door(t, nil, "  - target: "+host+"\n    methods: [GET, POST]\n    credentials: true\n  - target: "+other+"\n")
	ask := func(to string) (machine.HTTP, error) {
		return d.Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/to?to=" + to, Headers: map[string]string{"Authorization": "Bearer x", "X-Word": "secret"}})
	}
	if got, err := ask("/end"); err != nil || got.Text != "/end Bearer x" || len(got.Hops) != 1 || got.URL != "http://"+host+"/end" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ask("http://" + other + "/"); err != nil || got.Status != 200 || stolen.Load() != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ask("http://" + other + "/back?to=http://" + host + "/end"); err != nil || got.Text != "/end " {
		t.Errorf("a credential comes back: %+v, %v", got, err)
	}
	for name, to := range map[string]string{"not listed": "http://" + unlisted + "/", "metadata": "http://169.254.169.254/", "a file": "file:///etc/passwd", "a user": "http://a:b@" + host + "/end"} {
		_, err := ask(to)
		wantCode(t, name, err, problem.Denied, "rule private_http")
	}
	for _, path := range []string{"/loop", "/garbled"} {
		_, err := d.Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + path})
		wantCode(t, path, err, problem.Upstream)
	}
	if got, err := d.Send(t.Context(), machine.HTTPArgs{Method: "POST", URL: "http://" + host + "/to?to=/end"}); err != nil || got.Status != http.StatusTemporaryRedirect || got.Headers["Location"] != "/end" {
		t.Errorf("a redirect of a POST is its answer: %+v, %v", got, err)
	}
	if stolen.Load() != 0 {
		t.Errorf("what was meant for one went to another")
	}
}

// hijacked answers a request with raw bytes, and then holds the connection until it is closed.
func hijacked(t *testing.T, raw string, hold bool) string {
	_, host := served(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, raw)
		if hold {
			_, _ = io.Copy(io.Discard, conn)
		}
	})
	return host
}

func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		hold bool
		code problem.Code
	}{
		"garbage":              {"\x16\x03\x01 what?\r\n\r\n", false, problem.Upstream},
		"nothing":              {"", false, problem.Upstream},
		"huge headers":         {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", false, problem.Upstream},
		"a thousand interims":  {strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", 1000), false, problem.Upstream},
		"silence":              {"", true, problem.Timeout},
		"a header without end": {"HTTP/1.1 200 OK\r\nA: ", true, problem.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := hijacked(t, c.raw, c.hold)
			d := door(t, nil, "  - target: "+host+"\n    methods: [GET, POST]\n")
			_, err := d.Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/", Timeout: 1})
			wantCode(t, "read", err, c.code)
			// What was sent may have had its effect.
			_, err = d.Send(t.Context(), machine.HTTPArgs{Method: "POST", URL: "http://" + host + "/", Timeout: 1, Body: "x"})
			wantCode(t, "sent", err, problem.Unknown)
		})
	}
	host := hijacked(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun", true)
	got, err := door(t, nil, "  - target: "+host+"\n").Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/", Timeout: 1})
	if err != nil || got.Text != "begun" || !got.Truncated || !strings.Contains(got.Broken, "within 1s") {
		t.Errorf("a slow body: %+v, %v", got, err)
	}
	host = hijacked(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun", false)
	if got, err = door(t, nil, "  - target: "+host+"\n").Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/"}); err != nil || got.Text != "begun" || got.Broken == "" {
		t.Errorf("a body that breaks off: %+v, %v", got, err)
	}
	_, err = door(t, nil, "  - target: 127.0.0.1:1\n    methods: [POST]\n").Send(t.Context(), machine.HTTPArgs{Method: "POST", URL: "http://127.0.0.1:1/"})
	wantCode(t, "nobody there", err, problem.Unavailable)
}

// What is answered is bounded as it is after decompression, and as it is in JSON.
func TestBombs(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 256 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	_, host := served(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		case "/endless":
			for {
				if _, err := w.Write(bytes.Repeat([]byte("<"), 1<<16)); err != nil {
					return
				}
			}
		case "/headers":
			for i := range 500 {
				w.Header().Set(fmt.Sprintf("X-%03d", i), strings.Repeat("y", 90))
			}
		}
	})
	d := door(t, nil, "  - target: "+host+"\n")
	for _, path := range []string{"/bomb", "/endless"} {
		got, err := d.Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + path, Max: maxBytes})
		if err != nil || !got.Truncated || got.Bytes != maxBytes || got.Text != "" {
			t.Errorf("%s: %d bytes, truncated %v, %v", path, got.Bytes, got.Truncated, err)
		}
	}
	got, err := d.Get(t.Context(), machine.HTTPArgs{URL: "http://" + host + "/headers"})
	if err != nil || len(got.Headers) > 2*maxHeaders {
		t.Errorf("%d headers, %v", len(got.Headers), err)
	}
}

// A server is verified by the machine's roots; another's certificate is no answer.
func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "sealed") }))
	defer s.Close()
	yaml := "  - target: " + s.URL + "/\n"
	_, err := door(t, nil, yaml).Get(t.Context(), machine.HTTPArgs{URL: s.URL})
	wantCode(t, "an unknown authority", err, problem.Unavailable)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	d, err := open(list(t, yaml), nil, roots)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.Get(t.Context(), machine.HTTPArgs{URL: s.URL}); err != nil || got.Text != "sealed" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A call that is called off ends in the middle: a read as if it never was, what was sent as unknown.
func TestCalledOff(t *testing.T) {
	here := make(chan struct{}, 2)
	_, host := served(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		here <- struct{}{}
		<-r.Context().Done()
	})
	d := door(t, nil, "  - target: "+host+"\n    methods: [GET, POST]\n")
	for method, c := range map[string]struct {
		do   func(context.Context, machine.HTTPArgs) (machine.HTTP, error)
		code problem.Code
	}{"GET": {d.Get, problem.Cancelled}, "POST": {d.Send, problem.Unknown}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-here; cancel(problem.New(problem.Cancelled, "the call was called off")) }()
		_, err := c.do(ctx, machine.HTTPArgs{Method: method, URL: "http://" + host + "/"})
		wantCode(t, method, err, c.code)
	}
}
