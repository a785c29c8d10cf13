package up

import (
	"net/netip"
	"testing"

	"github.com/execwarden/execwarden/libs/egress"
)

func TestConsoleURL(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1:8080": "http://127.0.0.1:8080", ":8080": "http://localhost:8080", "0.0.0.0:80": "http://localhost:80",
		"[::]:8080": "http://localhost:8080", "[::1]:8080": "http://[::1]:8080", "127.0.0.1:0": "", "nonsense": ""} {
		if got := (Config{Listen: listen}).consoleURL(); got != want {
			t.Errorf("%s: %q, want %q", listen, got, want)
		}
	}
	if got := (Config{Listen: ":1", PublicURL: "https://a.example"}).consoleURL(); got != "https://a.example" {
		t.Error(got)
	}
}

func TestOwnHosts(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("10.1.2.3")}
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"addresses":           {Config{Listen: "127.0.0.1:8080", HooksListen: "10.1.2.3:8081", OpsListen: "[::1]:9464", NATSListen: "127.0.0.1:4222"}, "127.0.0.1:8080,10.1.2.3:8081,[::1]:9464,127.0.0.1:4222"},
		"all addresses":       {Config{Listen: ":8080"}, "127.0.0.1:8080,[::1]:8080,10.1.2.3:8080"},
		"all, as an address":  {Config{Listen: "0.0.0.0:8080", HooksListen: "[::]:1"}, "127.0.0.1:8080,[::1]:8080,10.1.2.3:8080,127.0.0.1:1,[::1]:1,10.1.2.3:1"},
		"a name":              {Config{Listen: "localhost:8080"}, "localhost:8080,127.0.0.1:8080,[::1]:8080"},
		"a port to be chosen": {Config{Listen: "127.0.0.1:0"}, ""},
		"a public URL":        {Config{PublicURL: "https://warden.example.com/x"}, "warden.example.com"},
	} {
		got := tc.cfg.ownHosts(machine)
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	for _, a := range machineAddresses() { // each can be denied
		if _, err := egress.New(egress.Rule{Hosts: []string{"*"}, Deny: []string{netip.AddrPortFrom(a, 80).String()}}); err != nil {
			t.Error(err)
		}
	}
}
