package runtime_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/script"
	"github.com/execwarden/execwarden/services/runtime"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// names is the DNS of the tests: no test asks a real one.
var names = &fakeDNS{answers: map[string][]string{}, asked: map[string]int{}}

func TestMain(m *testing.M) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	over := make(chan struct{})
	go func() { defer close(over); names.serve(conn) }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	code := m.Run()
	conn.Close()
	<-over
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// fakeDNS answers a name with each of its addresses once, and with the last for ever.
type fakeDNS struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   map[string]int
}

func (d *fakeDNS) set(name string, addresses ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[name+"."], d.asked[name+"."] = addresses, 0
}

func (d *fakeDNS) count(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[name+"."]
}

func (d *fakeDNS) serve(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Authoritative, m.Additionals = true, true, nil
		q := m.Questions[0]
		d.mu.Lock()
		if list := d.answers[q.Name.String()]; len(list) == 0 {
			m.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			i := min(d.asked[q.Name.String()], len(list)-1)
			d.asked[q.Name.String()]++
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: netip.MustParseAddr(list[i]).As4()}}}
		}
		d.mu.Unlock()
		if out, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(out, from)
		}
	}
}

// again starts the runtime anew, with other settings.
func (h *house) again(change func(*runtime.Config)) {
	h.t.Helper()
	h.stop()
	h.change = change
	h.run()
}

// allow gives the agent these rules.
func (h *house) allow(rules ...agent.Egress) {
	h.t.Helper()
	h.Say(schemas.Gateway, eventlog.Draft{Key: "agt_a", Event: agent.Defined{Agent: "agt_a", Hosting: agent.Hosted, Runtime: agent.Runtime{Enabled: true, Egress: rules}}})
}

// A fetch whose script ends before the answer is on record all the same: what its URL carries is out.
func TestFetchThatIsCutOffIsRecorded(t *testing.T) {
	h := start(t, false)
	host, rule := h.serve(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h.allow(rule)
	h.admit("call_js", source(fmt.Sprintf(`fetch("http://%s/?q=secret"); await artifacts.list(); for (;;) {}`, host)))
	if _, result := h.outcome("call_js"); !strings.Contains(result, "cpu_limit") {
		t.Error(result)
	}
	begun, _ := servicekit.Await[script.Fetching](h.Kit, 1, nil)
	if begun.Method != http.MethodGet || begun.Body.URL != "http://"+host+"/?q=secret" || begun.Call != "call_js" {
		t.Errorf("%+v", begun)
	}
	if n := len(h.Events(schemas.Activity, "script.fetched")); n != 0 {
		t.Errorf("%d fetches have an answer", n)
	}
}

// Where a server leads to is in the message of a redirect that is refused: it taints like a page.
func TestFetchThatIsRefusedTaints(t *testing.T) {
	h := start(t, false)
	host, rule := h.serve(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://say-this.example:81/", http.StatusFound)
	})
	h.allow(rule)
	h.admit("call_js", source(fmt.Sprintf(`try { await fetch("http://%s/") } catch (e) { return e.message }`, host)))
	f, result := h.outcome("call_js")
	if !strings.Contains(result, "say-this.example") || !slices.Contains(f.Taint, "fetch:"+host) {
		t.Errorf("%s, taint %v", result, f.Taint)
	}
}

// serve starts a server and gives its host:port, and a rule that allows it.
func (h *house) serve(f http.HandlerFunc) (host string, rule agent.Egress) {
	h.t.Helper()
	s := httptest.NewServer(f)
	h.t.Cleanup(s.Close)
	host = strings.TrimPrefix(s.URL, "http://")
	return host, agent.Egress{Hosts: []string{host}, Private: []string{host}}
}

// value runs a script to its value.
func (h *house) value(js string) string {
	h.t.Helper()
	h.n++
	c := id.Call(fmt.Sprint("call_v", h.n))
	h.admit(c, source(js))
	_, result := h.outcome(c)
	var r struct {
		Value json.RawMessage
		Error json.RawMessage
	}
	if err := json.Unmarshal([]byte(result), &r); err != nil {
		h.t.Fatal(result)
	}
	if r.Error != nil {
		return string(r.Error)
	}
	return string(r.Value)
}

// tryEach fetches each URL, one after the other, and gives how it ended: a page, or the error's name or code.
const tryEach = `const out = []; for (const u of urls) { try { out.push(await (await fetch(u)).text()) } catch (e) { out.push(e.code || e.name) } } return out;`

func list(urls ...string) string {
	raw, _ := json.Marshal(urls)
	return "const urls = " + string(raw) + "; "
}

// TestHostile is cases of URLs that have broken guards like this one, each through a real worker and the real guard.
func TestHostile(t *testing.T) {
	h := start(t, false)
	var asked atomic.Int64
	server, _ := h.serve(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := net.SplitHostPort(server)
	h.allow(agent.Egress{Hosts: []string{"*", "*:" + port}, Methods: []string{"*"}})
	blocked := func(n int) string {
		raw, _ := json.Marshal(slices.Repeat([]string{"fetch_blocked"}, n))
		return string(raw)
	}
	for name, urls := range map[string][]string{
		"29_metadata_address":    {"http://169.254.169.254/", "http://169.254.169.254/latest/meta-data/iam/", "http://100.100.100.200/", "http://168.63.129.16/"},
		"30_mapped_address":      {"http://[::ffff:a9fe:a9fe]/", "http://[::ffff:169.254.169.254]/", "http://[::ffff:127.0.0.1]:" + port + "/"},
		"31_nat64_address":       {"http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::a9fe:a9fe]/"},
		"34_unspecified_address": {"http://0.0.0.0:" + port + "/", "http://[::]:" + port + "/", "http://0.0.0.0/", "http://[::]/"},
		"36_before_any_look-up":  {"http://ok@127.0.0.1:" + port + "/", "http://u:p@names.test/", "file:///etc/passwd", "gopher://127.0.0.1/", "gopher:", "data:text/plain,x", "ftp://names.test/"},
		"other_spellings":        {"http://127.1:" + port + "/", "http://2130706433:" + port + "/", "http://0x7f.1:" + port + "/", "http://①②⑦.⓪.⓪.①:" + port + "/", "http://127。0。0。1:" + port + "/", "http://localhost:" + port + "/"},
		"other_ports":            {"http://127.0.0.1:22/", "http://names.test:6379/", "http://names.test:0/"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := h.value(list(urls...) + tryEach); got != blocked(len(urls)) {
				t.Error(got)
			}
		})
	}
	t.Run("37_name_that_alternates", func(t *testing.T) {
		names.set("rebind.test", "1.2.3.4", "127.0.0.1", "127.0.0.1")
		first, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", "rebind.test") // as a guard that looks once would
		if err != nil || first[0] != netip.MustParseAddr("1.2.3.4") {
			t.Fatal(first, err)
		}
		if got := h.value(list("http://rebind.test:"+port+"/", "http://rebind.test:"+port+"/") + tryEach); got != blocked(2) {
			t.Error(got)
		}
		if n := names.count("rebind.test"); n != 3 {
			t.Errorf("%d look-ups", n)
		}
	})
	t.Run("40_line_break_in_a_header", func(t *testing.T) {
		if got := h.value(fmt.Sprintf(`const out = []; for (const headers of [{a: "a\r\nHost: x"}, {a: "a\nb"}, {"a\r\nb": "x"}, [["a", "\0"]]]) {
			try { await fetch("http://%s/", {headers}); out.push("sent") } catch (e) { out.push(e.name) } } return out`, server)); got != `["TypeError","TypeError","TypeError","TypeError"]` {
			t.Error(got)
		}
	})
	if asked.Load() != 0 || names.count("names.test") != 0 {
		t.Errorf("the server was asked %d times, the DNS %d times", asked.Load(), names.count("names.test"))
	}
	for _, e := range h.Events(schemas.Activity, "script.fetched") {
		ev, _ := e.Envelope.Decode()
		f := ev.(script.Fetched)
		if f.Code == "" || len(f.Body.Hops) == 0 || strings.Contains(string(e.Raw), "u:p@") || f.Body.Message == "" {
			t.Errorf("%+v", f)
		}
	}
}

// bomb answers with gzip that never ends, and says that it is short.
func bomb(w http.ResponseWriter, _ *http.Request) {
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	_, _ = z.Write(make([]byte, 1<<20))
	_ = z.Close()
	w.Header().Set("Content-Encoding", "gzip")
	for {
		if _, err := w.Write(member.Bytes()); err != nil {
			return
		}
	}
}

func TestHostileSizes(t *testing.T) {
	h := start(t, false)
	endless, rule := h.serve(bomb)
	short, small := h.serve(func(w http.ResponseWriter, _ *http.Request) {
		var body bytes.Buffer
		z := gzip.NewWriter(&body)
		_, _ = z.Write(make([]byte, 3<<20))
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", fmt.Sprint(body.Len()))
		_, _ = w.Write(body.Bytes())
	})
	small.ResponseBytes = 1 << 20
	heads, headRule := h.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 80<<10))
	})
	full, fullRule := h.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5<<20)) })
	h.allow(rule, small, headRule, fullRule)
	t.Run("all_pages_together", func(t *testing.T) {
		if got := h.value(`const out = []; for (let i = 0; i < 4; i++) { try { out.push((await (await fetch("http://` + full + `/")).bytes()).length) } catch (e) { out.push(e.code) } } return out`); got != `[5242880,5242880,5242880,"fetch_too_large"]` {
			t.Error(got)
		}
	})
	for name, c := range map[string]struct{ url, want string }{
		"39_gzip_bomb":     {endless, "fetch_too_large"},
		"a_huge_header":    {heads, "unavailable"},
		"a_short_gzip_too": {short, "fetch_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := h.value(list("http://"+c.url+"/") + tryEach); got != `["`+c.want+`"]` {
				t.Error(got)
			}
		})
	}
	t.Run("neighbours", func(t *testing.T) {
		if got := h.value(`return 1`); got != "1" {
			t.Error(got)
		}
	})
}

// TestReported is bugs of others in this field.
func TestReported(t *testing.T) {
	h := start(t, false)
	var asked atomic.Int64
	server, _ := h.serve(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := net.SplitHostPort(server)
	endless, rule := h.serve(bomb)
	rule.ResponseBytes = 1 << 20
	h.allow(rule, agent.Egress{Hosts: []string{"*", "*:" + port}})
	t.Run("nightingale#3363", func(t *testing.T) { // 6to4 and NAT64 carry an address that the guard did not look at
		if got := h.value(list("http://[2002:7f00:1::1]:"+port+"/", "http://[2002:a9fe:a9fe::1]/", "http://[64:ff9b::7f00:1]:"+port+"/", "http://[64:ff9b::a00:1]/", "http://[2001:0:53aa:64c:0:5efe:7f00:1]/") + tryEach); got != `["fetch_blocked","fetch_blocked","fetch_blocked","fetch_blocked","fetch_blocked"]` {
			t.Error(got)
		}
	})
	t.Run("agent-os#516", func(t *testing.T) { // the address that was checked was not the one that was dialled: one look-up, one dial
		names.set("twice.test", "127.0.0.1")
		if got := h.value(list("http://twice.test:"+port+"/") + tryEach); got != `["fetch_blocked"]` {
			t.Error(got)
		}
		if n := names.count("twice.test"); n != 1 {
			t.Errorf("%d look-ups for one fetch", n)
		}
	})
	t.Run("ffuf#897", func(t *testing.T) { // what counts is what the decompressed body has, not what Content-Length says
		if got := h.value(list("http://"+endless+"/") + tryEach); got != `["fetch_too_large"]` {
			t.Error(got)
		}
	})
	if asked.Load() != 0 {
		t.Errorf("the server was asked %d times", asked.Load())
	}
}

// The rule's methods and caps, and what no rule allows.
func TestFetchRules(t *testing.T) {
	h := start(t, false)
	echo := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %d %s", r.Method, len(body), r.Header.Get("Cookie"))
	}
	server, rule := h.serve(echo)
	few, fewRule := h.serve(echo)
	fewRule.Fetches = 2
	slow, slowRule := h.serve(echo)
	slowRule.TimeoutMS = 300
	rule.Methods, rule.RequestBytes, rule.ResponseBytes = []string{"GET", "POST"}, 10, 12
	h.allow(rule, fewRule, slowRule)
	at := "http://" + server + "/"
	for name, c := range map[string]struct{ js, want string }{
		"a get":             {`fetch("` + at + `")`, "GET 0 "},
		"a post":            {`fetch("` + at + `", {method: "POST", body: "0123456789"})`, "POST 10 "},
		"too long a body":   {`fetch("` + at + `", {method: "POST", body: "0123456789a"})`, "fetch_too_large"},
		"another method":    {`fetch("` + at + `", {method: "PUT"})`, "fetch_blocked"},
		"another host":      {`fetch("http://other.test/")`, "fetch_blocked"},
		"too slow":          {`fetch("http://` + slow + `/hang")`, "timeout"},
		"too long a page":   {`fetch("` + at + `", {headers: {cookie: "ab=cdefg"}})`, "fetch_too_large"},
		"Host":              {`fetch("` + at + `", {headers: {host: "x"}})`, "fetch_blocked"},
		"X-Forwarded-For":   {`fetch("` + at + `", {headers: {"x-forwarded-for": "1.1.1.1"}})`, "fetch_blocked"},
		"Content-Length":    {`fetch("` + at + `", {headers: {"content-length": "1"}})`, "fetch_blocked"},
		"Transfer-Encoding": {`fetch("` + at + `", {headers: {"transfer-encoding": "chunked"}})`, "fetch_blocked"},
		"Proxy-*":           {`fetch("` + at + `", {headers: {"proxy-authorization": "x"}})`, "fetch_blocked"},
		"no URL":            {`fetch("http://a b/")`, "invalid"},
		"more than allowed": {`(await fetch("http://` + few + `/"), await fetch("http://` + few + `/"), await fetch("http://` + few + `/"))`, "fetch_blocked"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := h.value(`try { return await (await ` + c.js + `).text() } catch (e) { return e.code || e.name }`); got != `"`+c.want+`"` {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A rule that cannot be read fails the script, and holds up nothing.
func TestRuleThatCannotBeRead(t *testing.T) {
	h := start(t, false)
	h.allow(agent.Egress{Hosts: []string{"https://a b"}})
	h.admit("call_js", source(`return 1`))
	if f, _ := servicekit.Await[call.Failed](h.Kit, 1, nil); f.Call != "call_js" || f.Code != "invalid" {
		t.Errorf("%+v", f)
	}
}

// What the operator denies, no agent's rule allows: neither by name nor by address.
func TestOwnHosts(t *testing.T) {
	h := start(t, false)
	own, rule := h.serve(func(http.ResponseWriter, *http.Request) { t.Error("the deployment's own API was asked") })
	names.set("warden.test", "127.0.0.1")
	names.set("alias.test", "127.0.0.1")
	_, port, _ := net.SplitHostPort(own)
	rule.Hosts = []string{"*", "*:" + port, own}
	h.again(func(c *runtime.Config) { c.FetchDeny = "warden.test, " + own })
	h.allow(rule)
	if got := h.value(list("http://"+own+"/", "http://warden.test:"+port+"/", "http://alias.test:"+port+"/", "http://warden.test./") + tryEach); got != `["fetch_blocked","fetch_blocked","fetch_blocked","fetch_blocked"]` {
		t.Error(got)
	}
}

// Each hop is recorded, the refused one too; credentials stay with the origin that they were for.
func TestRedirectsOfAScript(t *testing.T) {
	h := start(t, false)
	other, otherRule := h.serve(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "auth %q key %q", r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"))
	})
	server, rule := h.serve(func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/chain/%d", &n); err == nil && n > 0 {
			http.Redirect(w, r, fmt.Sprintf("/chain/%d", n-1), http.StatusFound)
			return
		}
		switch r.URL.Path {
		case "/other":
			http.Redirect(w, r, "http://"+other+"/", http.StatusFound)
		case "/inner":
			http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusFound)
		default:
			fmt.Fprint(w, "here")
		}
	})
	h.allow(rule, otherRule)
	at := "http://" + server
	for name, c := range map[string]struct {
		path, want, code string
		hops             int
		last             string
	}{
		"five":         {"/chain/5", "here", "", 6, at + "/chain/0"},
		"six":          {"/chain/6", "fetch_blocked", "denied", 7, at + "/chain/0"},
		"to metadata":  {"/inner", "fetch_blocked", "denied", 2, "http://169.254.169.254/latest/"},
		"to elsewhere": {"/other", `auth \"\" key \"\"`, "", 2, "http://" + other + "/"},
	} {
		t.Run(name, func(t *testing.T) {
			got := h.value(`try { return await (await fetch("` + at + c.path + `", {headers: {authorization: "Bearer x", "x-api-key": "y"}})).text() } catch (e) { return e.code }`)
			if got != `"`+c.want+`"` {
				t.Errorf("%s", got)
			}
			var last script.Fetched
			for _, e := range h.Events(schemas.Activity, "script.fetched") {
				ev, _ := e.Envelope.Decode()
				last = ev.(script.Fetched)
			}
			hops := last.Body.Hops
			if len(hops) != c.hops || hops[len(hops)-1].URL != c.last || last.Code != c.code || (c.code == "") != (hops[len(hops)-1].Status == 200) {
				t.Errorf("%+v", last)
			}
		})
	}
}

// A script that is run again, after a call of it was held, is given the page that it had: it is not asked for again.
func TestFetchIsNotRepeated(t *testing.T) {
	h := start(t, false)
	var asked atomic.Int64
	server, rule := h.serve(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "page %d for %s%s", asked.Add(1), r.Method, strings.Repeat(" ", 20_000*int(asked.Load()-1)))
	})
	rule.Methods, rule.Fetches = []string{"*"}, 2
	h.allow(rule)
	h.admit("call_js", source(fmt.Sprintf(`const at = "http://%s/"; const a = await (await fetch(at)).text(), b = (await (await fetch(at, {method: "POST", body: "x"})).text()).trimEnd();
		let c; try { await fetch(at) } catch (e) { c = e.code } return [a, b, c, await tools.tickets.close({a, b})]`, server)))
	r := h.nested(1)
	if !slices.Contains(r.Taint, "fetch:"+server) {
		t.Errorf("a call after a fetch has taint %v", r.Taint)
	}
	h.Say(schemas.Toolbroker, eventlog.Draft{Key: string(run1), Event: call.Held{Call: r.Call, Run: run1, Agent: "agt_a", Tool: r.Tool, Digest: "d"}})
	h.letsGo("call_js")
	h.finish(r, `{"content":[{"type":"text","text":"closed"}]}`)
	f, result := h.outcome("call_js")
	if !strings.Contains(result, `["page 1 for GET","page 2 for POST","fetch_blocked","closed"]`) || asked.Load() != 2 || !slices.Contains(f.Taint, "fetch:"+server) {
		t.Errorf("%s, asked %d times, taint %v", result, asked.Load(), f.Taint)
	}
	if started, _ := servicekit.Await[script.Started](h.Kit, 2, nil); started.Attempt < 2 {
		t.Errorf("%+v", started)
	}
	if n := len(h.Events(schemas.Activity, "script.fetched")); n != 3 {
		t.Errorf("%d fetches are recorded", n)
	}
}

// A crash around a request that may change something. Where the record has its beginning, it may have been made, and is
// not made again; where it has not, it was not made.
func TestPostThatWasCutOff(t *testing.T) {
	for name, begun := range map[string]bool{"recorded": true, "not recorded": false} {
		t.Run(name, func(t *testing.T) {
			h := start(t, false)
			var asked atomic.Int64
			server, rule := h.serve(func(w http.ResponseWriter, r *http.Request) { asked.Add(1); fmt.Fprint(w, "made") })
			rule.Methods = []string{"POST"}
			h.allow(rule)
			// Whoever runs the script first is cut off: the test speaks in its place.
			h.stop()
			h.admit("call_js", source(`try { return await (await fetch("http://`+server+`/", {method: "POST"})).text() } catch (e) { return e.code }`))
			if begun {
				raw, _ := json.Marshal(sandbox.Request{Method: "POST", URL: "http://" + server + "/"})
				sum := sha256.Sum256(raw)
				h.Say(schemas.Runtime, eventlog.Draft{Key: string(run1), Event: script.Fetching{Call: "call_js", Run: run1, Seq: 1, Digest: hex.EncodeToString(sum[:]), Method: "POST"}})
			}
			h.run()
			_, result := h.outcome("call_js")
			want, times := `"value":"made"`, int64(1)
			if begun {
				want, times = `"value":"unknown_outcome"`, 0
			}
			if !strings.Contains(result, want) || asked.Load() != times {
				t.Errorf("%s, asked %d times", result, asked.Load())
			}
		})
	}
}
