package host_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execwarden/execwarden/schemas/machine"
)

// Commands reach what the policy lists, by the proxy in their cage, and nothing else; also after the connector's next life,
// and in a cage of their own: another attachment's proxy is not theirs.
func TestTargets(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Add(1); fmt.Fprint(w, "listed") }))
	defer s.Close()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("what is not listed was reached") }))
	defer other.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	b := newBox(t, "network: targets\ntargets: [\""+host+"\"]\n")
	if m := b.Manifest(); m.Network != "targets" || len(m.Targets) != 1 || m.Targets[0] != host || !m.Isolation.Network {
		t.Errorf("the manifest %+v", m)
	}
	fetch := func(url string) machine.Exec {
		return b.run(machine.ExecArgs{Env: map[string]string{"NO_PROXY": "", "no_proxy": ""}, Argv: []string{"python3", "-c", "import urllib.request,sys; print(urllib.request.urlopen(sys.argv[1],timeout=10).read().decode(),end='')", url}})
	}
	for life := range 2 {
		if e := fetch(s.URL); e.Code == nil || *e.Code != 0 || e.Stdout != "listed" {
			t.Errorf("what is listed, in life %d: %+v", life, e)
		}
		if e := fetch(other.URL); e.Code == nil || *e.Code == 0 || !strings.Contains(e.Stderr, "403") {
			t.Errorf("what is not listed, in life %d: %+v", life, e)
		}
		b.Close()
		b.begin()
		if err := b.Open(t.Context(), b.lease); err != nil {
			t.Fatal(err)
		}
	}
	// Without the proxy there is no way.
	if e := b.sh("HTTP_PROXY= http_proxy= python3 -c 'import socket; socket.create_connection((\"" + strings.Replace(host, ":", "\",", 1) + "),2)'"); e.Code == nil || *e.Code == 0 {
		t.Errorf("straight: %+v", e)
	}
	// A tunnel, and its end on both sides.
	tunnel := `import socket,os,sys
p=os.environ["HTTPS_PROXY"].rsplit(":",1)[1]
c=socket.create_connection(("127.0.0.1",int(p)),5); f=c.makefile("rwb")
f.write(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n" % sys.argv[1].encode()); f.flush()
print(f.readline().decode().strip()); f.readline()
f.write(b"GET / HTTP/1.0\r\n\r\n"); f.flush(); c.shutdown(socket.SHUT_WR)
print(f.read().decode().split("\r\n")[-1])`
	if e := b.run(machine.ExecArgs{Argv: []string{"python3", "-c", tunnel, host}}); e.Stdout != "HTTP/1.1 200 Connection established\nlisted\n" {
		t.Errorf("a tunnel: %+v", e)
	}
	if asked.Load() != 3 {
		t.Errorf("the target was asked %d times", asked.Load())
	}
}
