package up

import (
	"bufio"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas/machine"
	"github.com/execwarden/execwarden/tools/execwarden/internal/client"
	"github.com/execwarden/execwarden/tools/scriptmodel"
)

// outlet is a proxy as a customer's network has it: it asks for a password, tunnels what CONNECT names, and asks plain
// requests itself.
type outlet struct {
	net.Listener
	want    string
	working sync.WaitGroup

	mu      sync.Mutex
	asked   []string
	refused int
}

func newOutlet(t *testing.T, address, user string) *outlet {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	p := &outlet{Listener: l, want: "Basic " + base64.StdEncoding.EncodeToString([]byte(user))}
	server := &http.Server{Handler: p} //nolint:gosec // it ends with the test
	p.working.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { _ = server.Close(); p.working.Wait() })
	return p
}

func (p *outlet) methods() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *outlet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	known := r.Header.Get("Proxy-Authorization") == p.want
	if known {
		p.asked = append(p.asked, r.Method+" "+r.Host)
	} else {
		p.refused++
	}
	p.mu.Unlock()
	if !known {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		r.RequestURI = ""
		r.Header.Del("Proxy-Authorization")
		transport := &http.Transport{DisableKeepAlives: true}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
		return
	}
	to, err := net.Dial("tcp", r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer to.Close()
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	p.working.Go(func() { _, _ = io.Copy(conn, to); _ = conn.Close() })
	_, _ = bufio.NewReader(buffered).WriteTo(to)
}

// A machine whose network lets it out through a proxy alone, which wants a password: it enrols, connects and works through
// it. One that NO_PROXY spares goes straight.
func TestThroughAProxy(t *testing.T) {
	s, w := newSiteWorld(t)
	p := newOutlet(t, s.warden, "connector:pass word")
	via := "http://connector:pass%20word@" + p.Addr().String()
	w.scripted("worker", scriptmodel.Call{Tool: "machine.exec", Args: map[string]string{"command": "echo through; env | grep -i proxy"}})
	v := &vm{s: s, w: w, name: "behind", home: shortDir(t), env: []string{"HTTP_PROXY=" + via, "http_proxy=" + via, "NO_PROXY=", "no_proxy="}}
	v.enrol("")
	v.online()
	if _, err := w.Attach(t.Context(), "behind", client.Attachment{Agent: "worker"}); err != nil {
		t.Fatal(err)
	}
	results, _ := w.results("worker")
	if got := resultOf[machine.Exec](t, results[0]); got.Stdout != "through\n" {
		t.Errorf("the command, which has nothing of the proxy: %+v", got)
	}
	api := hostport(w.endpoints.API)
	if asked := p.methods(); !slices.Contains(asked, "POST "+api) || !slices.Contains(asked, "CONNECT "+api) {
		t.Errorf("the proxy was asked for %q", asked)
	}
	before := len(p.methods())
	v.kill()
	v.env = append(v.env[:2:2], "NO_PROXY="+s.warden)
	v.start()
	v.online()
	if now := len(p.methods()); now != before {
		t.Errorf("a proxy that NO_PROXY spares was asked: %q", p.methods()[before:])
	}
	v.kill()
	v.env = []string{"HTTP_PROXY=http://connector:guess@" + p.Addr().String()}
	v.start()
	buskit.Eventually(t, "the proxy refuses", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.refused > 0 })
	if v.welcomed.Load() {
		t.Error("it got through without the password")
	}
}
