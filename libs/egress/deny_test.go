package egress

import (
	"bytes"
	"io"
	"net/http"
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
