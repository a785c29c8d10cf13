package host

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/schemas/machine"
)

// In a container, whose network is nothing but itself, commands reach what is listed by the same proxy.
func TestDockerTargets(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "listed") }))
	defer s.Close()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("what is not listed was reached") }))
	defer other.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	d := newDock(t, "targets: [\""+host+"\"]\ndocker: {network: targets}")
	if m := d.Manifest(); m.Network != "targets" || len(m.Targets) != 1 || !m.Isolation.Container {
		t.Errorf("the manifest %+v", m)
	}
	for range 2 {
		if e := d.exec(machine.ExecArgs{Argv: []string{"wget", "-q", "-O", "-", s.URL}}); e.Stdout != "listed" {
			t.Errorf("what is listed: %+v", e)
		}
		if e := d.exec(machine.ExecArgs{Argv: []string{"wget", "-q", "-O", "-", other.URL}}); e.Code == nil || *e.Code == 0 || !strings.Contains(e.Stderr, "403") {
			t.Errorf("what is not listed: %+v", e)
		}
		if e := d.sh("nc -w 2 " + strings.Replace(host, ":", " ", 1) + " </dev/null"); e.Code == nil || *e.Code == 0 {
			t.Errorf("straight: %+v", e)
		}
		d.reopen()
	}
}
