package host_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/machine"
)

// The machine asks what its policy lists; what was sent is sent once, whatever is asked again, and ends when it is called off.
func TestPrivateHTTP(t *testing.T) {
	var posts atomic.Int64
	here := make(chan struct{}, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
		}
		if r.URL.Path == "/hangs" {
			here <- struct{}{}
			<-r.Context().Done()
		}
		_, _ = w.Write([]byte("private " + r.Method))
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	b := newBox(t, "private_http:\n  - target: "+host+"\n    methods: [GET, POST]\n")
	if m := b.Manifest(); len(m.PrivateHTTP) != 1 || m.PrivateHTTP[0] != host+" GET,POST" {
		t.Errorf("the manifest %+v", m)
	}
	if got := result[machine.HTTP](t, b.do(b.order("http_private", machine.HTTPArgs{URL: s.URL}))); got.Text != "private GET" {
		t.Errorf("%+v", got)
	}
	// Commands have no way there: their network is off.
	if e := b.sh("exec 3<>/dev/tcp/" + strings.Replace(host, ":", "/", 1) + " || wget -T 1 -q -O- " + s.URL); e.Code == nil || *e.Code == 0 {
		t.Errorf("a command reached it: %+v", e)
	}
	post := b.order("http_private_send", machine.HTTPArgs{Method: "POST", URL: s.URL})
	for range 3 {
		if got := result[machine.HTTP](t, b.do(post)); got.Text != "private POST" || posts.Load() != 1 {
			t.Errorf("%+v, sent %d times", got, posts.Load())
		}
		b.Close()
		b.begin()
		if err := b.Open(t.Context(), b.lease); err != nil {
			t.Fatal(err)
		}
	}
	if a := b.do(b.order("http_private", machine.HTTPArgs{URL: "http://169.254.169.254/"})); a.State != connector.Refused || a.Code != "denied" || !strings.Contains(a.Message, "the machine's policy, rule private_http") {
		t.Errorf("%+v", a)
	}
	for tool, want := range map[string]connector.State{"http_private": connector.Refused, "http_private_send": connector.Unknown} {
		a := machine.HTTPArgs{URL: s.URL + "/hangs"}
		if tool == "http_private_send" {
			a.Method = "POST"
		}
		o := b.order(tool, a)
		answered := make(chan connector.Answer, 1)
		go func() { answered <- b.do(o) }()
		<-here
		b.Cancel(t.Context(), connector.Cancel{Call: o.Call})
		if got := <-answered; got.State != want {
			t.Errorf("%s called off: %+v", tool, got)
		}
	}
}
