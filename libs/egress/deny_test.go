package egress

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/execwarden/execwarden/libs/problem"
)

// What is denied is denied by its name and by its address, though another entry allows both.
func TestDeny(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a denied server was asked") })
	port := server[strings.LastIndexByte(server, ':'):]
	resolver, _ := fakeDNS(t, "127.0.0.1")
	for name, deny := range map[string]string{
		"the host": "own.test", "the host at a port": "own.test" + port, "all below": "*.test", "the address": "127.0.0.1", "the address at a port": server, "the range": "127.0.0.0/8",
		"the range, mapped": "::ffff:127.0.0.0/104",
	} {
		c := client(t, resolver, Rule{Hosts: []string{"*", "*" + port}, AllowPrivate: []string{server}, Deny: []string{"other.test", deny}})
		for _, host := range []string{"own.test", "OWN.test.", "a.own.test"} {
			if host == "a.own.test" && strings.HasPrefix(name, "the host") {
				continue // another host
			}
			if _, _, err := get(t, c, "http://"+host+port+"/"); problem.CodeOf(err) != problem.Denied || !strings.Contains(err.Error(), "denied by its operator") {
				t.Errorf("%s, %s: %v", name, host, err)
			}
		}
	}
	near := serve(t, func(http.ResponseWriter, *http.Request) {})
	c := client(t, nil, Rule{Hosts: []string{near}, AllowPrivate: []string{near}, Deny: []string{server, "own.test:1"}})
	if _, _, err := get(t, c, "http://"+near+"/"); err != nil {
		t.Errorf("a server beside a denied one: %v", err)
	}
}

// What is denied for now is looked up for each address, by name and by address, and denies everything while it cannot be told.
func TestDenyNow(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	port := server[strings.LastIndexByte(server, ':'):]
	resolver, _ := fakeDNS(t, "127.0.0.1")
	var now []netip.Prefix
	var fault error
	c := client(t, resolver, Rule{Hosts: []string{"own.test" + port, server}, AllowPrivate: []string{server}, DenyNow: func() ([]netip.Prefix, error) { return now, fault }})
	for _, step := range []struct {
		now    []netip.Prefix
		fault  error
		denied bool
	}{{nil, nil, false}, {prefixes("127.0.0.1/32"), nil, true}, {prefixes("127.0.0.2/32"), nil, false}, {prefixes("127.0.0.0/8"), nil, true}, {nil, errors.New("no netlink"), true}, {nil, nil, false}} {
		now, fault = step.now, step.fault
		for _, host := range []string{"own.test" + port, server} {
			c.CloseIdleConnections()
			if _, _, err := get(t, c, "http://"+host+"/"); (problem.CodeOf(err) == problem.Denied) != step.denied || err != nil && !step.denied {
				t.Errorf("%+v, %s: %v", step, host, err)
			}
		}
	}
}

// This machine's addresses are all that its interfaces have, and everything that is loopback.
func TestMachineAddresses(t *testing.T) {
	own, err := MachineAddresses()
	if err != nil {
		t.Fatal(err)
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.9.9.9")}
	for _, at := range all {
		want = append(want, netip.MustParsePrefix(at.String()).Addr())
	}
	for _, a := range want {
		if !within(own, a) {
			t.Errorf("%s is not among %v", a, own)
		}
	}
	if within(own, netip.MustParseAddr("203.0.113.7")) {
		t.Error("another machine's address is this one's")
	}
}

// A name that is denied in its own letters is denied in the letters that are dialled, and the other way round.
func TestDenyOfOtherLetters(t *testing.T) {
	for _, deny := range []string{"bücher.test", "xn--bcher-kva.test", "BÜCHER.test", "*.bücher.test"} {
		c := client(t, nil, Rule{Hosts: []string{"*"}, Deny: []string{deny}})
		for _, host := range []string{"bücher.test", "xn--bcher-kva.test"} {
			if deny[0] == '*' {
				host = "a." + host
			}
			if _, _, err := get(t, c, "http://"+host+"/"); problem.CodeOf(err) != problem.Denied {
				t.Errorf("%s, %s: %v", deny, host, err)
			}
		}
	}
}

func TestMaxRequest(t *testing.T) {
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	rule := local(server)
	rule.MaxRequest = 4
	c := client(t, nil, rule)
	for name, tc := range map[string]struct {
		body io.Reader
		want problem.Code
	}{
		"none": {nil, ""}, "short": {strings.NewReader("1234"), ""}, "empty": {bytes.NewReader(nil), ""},
		"long": {strings.NewReader("12345"), problem.TooLarge}, "of unknown length": {io.MultiReader(strings.NewReader("1")), problem.TooLarge},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://"+server+"/", tc.body)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := do(t, c, req); err == nil && tc.want != "" || err != nil && problem.CodeOf(err) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRuleOf(t *testing.T) {
	c := client(t, nil, Rule{Hosts: []string{"a.test"}}, Rule{Hosts: []string{"*.test"}, Methods: []string{"*"}})
	for at, want := range map[string]int{
		"GET http://a.test/": 0, "POST http://a.test/": 1, // the first rule is for its host, and not for its method
		"POST http://b.test/": 1, "GET http://c.example/": -1, "GET http://u@a.test/": -1,
	} {
		method, url, _ := strings.Cut(at, " ")
		req, err := http.NewRequest(method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.RuleOf(req)
		if err != nil {
			got = -1
		}
		if got != want || err != nil && problem.CodeOf(err) != problem.Denied {
			t.Errorf("%s: rule %d, %v", at, got, err)
		}
	}
}

// The place where a redirect was stopped is among the hops.
func TestRefusedRedirectIsAHop(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://u:p@169.254.169.254/x", http.StatusFound)
	})
	_, hops, err := get(t, client(t, nil, local(server)), "http://"+server+"/")
	if problem.CodeOf(err) != problem.Denied || len(hops) != 2 || hops[1] != (Hop{URL: "http://169.254.169.254/x"}) || hops[0].Status != 302 {
		t.Errorf("%+v, %v", hops, err)
	}
}
