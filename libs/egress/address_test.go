package egress

import (
	"net/netip"
	"net/url"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

func TestIsPublic(t *testing.T) {
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "93.184.216.34", "::ffff:8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1"} {
		if !isPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s is not public", a)
		}
	}
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
		"198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"168.63.129.16",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "64:ff9b::a9fe:a9fe",
		"64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:a9fe:a9fe::1", "2002:7f00:1::", "3fff::1", "fc00::1",
		"fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1", "2606:4700::1%eth0",
	} {
		if isPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	if isPublic(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestExceptions(t *testing.T) {
	r, err := readRule(Rule{Hosts: []string{"*"}, AllowPrivate: []string{"127.0.0.1:8080", "10.0.0.0/8", "0.0.0.0/0", "[::1]:90"}, Deny: []string{"8.8.8.0/24"}})
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]bool{
		"127.0.0.1:8080":          true,
		"[::ffff:127.0.0.1]:8080": true,
		"10.9.9.9:1":              true,
		"[::1]:90":                true,
		"[::1]:91":                false,
		"169.254.169.254:80":      false, // a range never includes it
		"168.63.129.16:80":        false,
		"8.8.8.8:443":             false, // denied
		"8.8.4.4:443":             true,
	} {
		if got := r.mayDial(netip.MustParseAddrPort(to)); got != want {
			t.Errorf("%s: %v, want %v", to, got, want)
		}
	}
	named, err := readRule(Rule{Hosts: []string{"*"}, AllowPrivate: []string{"169.254.169.254"}})
	if err != nil {
		t.Fatal(err)
	}
	if !named.mayDial(netip.MustParseAddrPort("169.254.169.254:80")) {
		t.Error("an address that is named itself is refused")
	}
}

func TestInspect(t *testing.T) {
	for raw, want := range map[string]string{
		"http://Example.COM":            "http://example.com",
		"https://example.com.:443/x":    "https://example.com",
		"http://example.com:8080":       "http://example.com:8080",
		"http://bücher.example":         "http://xn--bcher-kva.example",
		"http://①②⑦.⓪.⓪.①/":             "http://127.0.0.1",
		"http://127。0。0。1/":             "http://127.0.0.1",
		"http://[::ffff:a9fe:a9fe]/":    "http://169.254.169.254",
		"http://[2606:4700::1111]:8443": "http://[2606:4700::1111]:8443",
		// refused before anything is resolved
		"http://ok@127.0.0.1/":     "",
		"http://ok:pw@host/":       "",
		"file:///etc/passwd":       "",
		"gopher://host/":           "",
		"javascript:alert(1)":      "",
		"http:host":                "",
		"http:///x":                "",
		"/path":                    "",
		"http://127.1/":            "",
		"http://2130706433/":       "",
		"http://0x7f.1/":           "",
		"http://0x7f000001/":       "",
		"http://017700000001/":     "",
		"http://1.2.3.4.5/":        "",
		"http://[fe80::1%25eth0]/": "",
		"http://host:0/":           "",
		"http://host:99999/":       "",
		"http://host:/":            "",
		"http://a_b/..":            "",
		"http://../":               "",
		"http://a..b/":             "",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			if want != "" {
				t.Errorf("%s: %v", raw, err)
			}
			continue
		}
		got, err := inspect(u)
		switch {
		case want == "" && problem.CodeOf(err) != problem.Denied:
			t.Errorf("%s is %s, %v; want a refusal", raw, got.origin(), err)
		case want != "" && (err != nil || got.origin() != want):
			t.Errorf("%s is %s, %v; want %s", raw, got.origin(), err, want)
		}
	}
}

func TestRulesMatch(t *testing.T) {
	for _, c := range []struct {
		host, url string
		want      bool
	}{
		{"api.example.com", "https://api.example.com/", true},
		{"API.example.com.", "http://api.example.com/", true},
		{"api.example.com", "https://api.example.com:8443/", false},
		{"api.example.com:8443", "https://api.example.com:8443/", true},
		{"api.example.com:8443", "https://api.example.com/", false},
		{"api.example.com", "https://xapi.example.com/", false},
		{"*.example.com", "https://a.b.example.com/", true},
		{"*.example.com", "https://example.com/", false},
		{"*.example.com", "https://example.com.evil.test/", false},
		{"*.example.com", "https://evilexample.com/", false},
		{"*", "https://anything.test/", true},
		{"*", "https://anything.test:8080/", false},
		{"127.0.0.1:9", "http://127.0.0.1:9/", true},
		{"[::1]:9", "http://[::1]:9/", true},
	} {
		r, err := readRule(Rule{Hosts: []string{c.host}})
		if err != nil {
			t.Fatal(c.host, err)
		}
		u, _ := url.Parse(c.url)
		to, err := inspect(u)
		if err != nil {
			t.Fatal(c.url, err)
		}
		if got := r.allows(to, "GET"); got != c.want {
			t.Errorf("%s for %s: %v", c.host, c.url, got)
		}
		if r.allows(to, "POST") {
			t.Errorf("%s allows POST by default", c.host)
		}
	}
}

func TestInvalidRules(t *testing.T) {
	for _, r := range []Rule{
		{}, {Hosts: []string{""}}, {Hosts: []string{"a*b"}}, {Hosts: []string{"*."}}, {Hosts: []string{"a:0"}}, {Hosts: []string{"a:x"}},
		{Hosts: []string{"http://a"}}, {Hosts: []string{"u@a"}}, {Hosts: []string{"*.*.a"}},
		{Hosts: []string{"a"}, AllowPrivate: []string{"localhost:1"}}, {Hosts: []string{"a"}, AllowPrivate: []string{"10.0.0.0/33"}},
		{Hosts: []string{"a"}, Deny: []string{"not a host"}}, {Hosts: []string{"a"}, MaxRequest: -1}, {Hosts: []string{"a"}, MaxBytes: -2}, {Hosts: []string{"a"}, MaxRedirects: -2},
	} {
		if _, err := New(r); problem.CodeOf(err) != problem.Invalid {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// FuzzInspect: whatever a URL says, what is accepted is one spelling of one place, and an address that is not public
// is not dialled without an exception.
func FuzzInspect(f *testing.F) {
	for _, s := range []string{"http://example.com/", "http://[::ffff:7f00:1]:80/", "http://①②⑦.⓪.⓪.①/", "https://a@b/", "http://0x7f.1", "http://[::1%25x]/", "http://%31%32%37.0.0.1/"} {
		f.Add(s)
	}
	r, err := readRule(Rule{Hosts: []string{"*"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		to, err := inspect(u)
		if err != nil {
			return
		}
		again, err := url.Parse(to.origin())
		if err != nil {
			t.Fatalf("%q becomes %q, which is no URL", raw, to.origin())
		}
		if same, err := inspect(again); err != nil || same != to {
			t.Fatalf("%q becomes %+v and then %+v, %v", raw, to, same, err)
		}
		if a, err := netip.ParseAddr(to.host); err == nil && r.mayDial(netip.AddrPortFrom(a, to.port)) {
			if a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || a.Is4In6() || a.Zone() != "" {
				t.Fatalf("%q may dial %s", raw, a)
			}
		}
	})
}
