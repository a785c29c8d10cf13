package boot

import (
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestListenSaysWhyNot(t *testing.T) {
	l, err := Listen("ops_listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{l.Addr().String(): "address already in use", "127.0.0.1": "missing port", "127.0.0.1:99999": "invalid port"} {
		_, err := Listen("ops_listen", address)
		if d := problem.DetailOf(err); d.Code != problem.Invalid || !strings.Contains(d.Message, want) || !strings.HasPrefix(d.Message, "ops_listen "+address) {
			t.Errorf("%s: %+v, want %q", address, d, want)
		}
	}
}
