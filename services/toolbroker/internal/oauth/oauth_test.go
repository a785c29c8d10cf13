package oauth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/libs/testkit/servicekit"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/toolbroker/internal/mcp"
	"github.com/execwarden/execwarden/services/toolbroker/internal/oauth"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
	"github.com/execwarden/execwarden/services/toolbroker/oauthkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const redirect = "http://127.0.0.1:8080/oauth/callback"

// house is two brokers' clients of one vault, and the servers that they log in to.
type house struct {
	t       *testing.T
	kit     *servicekit.Kit
	server  *oauthkit.Server
	clients [2]*oauth.Client
	vault   *vault.Vault
	conn    oauth.Connection

	mu      sync.Mutex
	told    []connection.LoginChanged
	counted []string
	logs    bytes.Buffer
}

func start(t *testing.T) *house {
	t.Helper()
	t.Parallel()
	h := &house{t: t, kit: servicekit.Start(t), server: oauthkit.Start(t)}
	h.conn = oauth.Connection{Tenant: servicekit.Tenant, Defined: connection.Defined{Connection: "con_tickets", Type: connection.MCP, URL: h.server.URL(),
		Private: h.server.Private(), OAuth: connection.OAuth{Flow: connection.AuthorizationCode}}}
	for i := range h.clients {
		v, err := vault.Open(t.Context(), h.kit.Conn(t, string(schemas.Toolbroker)), h.kit.Master)
		if err != nil {
			t.Fatal(err)
		}
		h.vault = v
		h.clients[i] = oauth.New(v, h.say, h.count, slog.New(slog.NewTextHandler(writer{h}, &slog.HandlerOptions{Level: slog.LevelDebug})))
		t.Cleanup(h.clients[i].Close)
	}
	return h
}

type writer struct{ h *house }

func (w writer) Write(p []byte) (int, error) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	return w.h.logs.Write(p)
}

func (h *house) say(_ context.Context, _ id.Tenant, _ string, ev connection.LoginChanged) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, ev)
	return nil
}

func (h *house) count(outcome string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counted = append(h.counted, outcome)
}

func (h *house) last() connection.LoginChanged {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.told) == 0 {
		h.t.Fatal("nothing was told of the login")
	}
	return h.told[len(h.told)-1]
}

func (h *house) begin() ask.LoginBegun {
	h.t.Helper()
	begun, err := h.clients[0].Begin(h.t.Context(), h.conn, "mem_owner", redirect, "")
	if err != nil {
		h.t.Fatal(err)
	}
	return begun
}

// finish is what the gateway makes of what a browser comes back with.
func finish(back url.Values) ask.FinishLogin {
	return ask.FinishLogin{State: back.Get("state"), Code: back.Get("code"), Issuer: back.Get("iss"), Error: back.Get("error")}
}

func (h *house) login() {
	h.t.Helper()
	if err := h.clients[0].Finish(h.t.Context(), h.conn, finish(oauthkit.Browse(h.t, h.begin().URL))); err != nil {
		h.t.Fatal(err)
	}
}

// provider is the connection at a broker, with a way out as the broker's.
func (h *house) provider(broker int) *mcp.Provider {
	h.t.Helper()
	way, err := egress.NewOrigins(egress.Rule{Methods: []string{"*"}, Timeout: -1, MaxRedirects: -1}).To(h.conn.URL, h.conn.Private)
	if err != nil {
		h.t.Fatal(err)
	}
	p := mcp.New(h.conn.URL, &http.Client{Transport: oauth.Transport{Client: h.clients[broker], Connection: h.conn, Next: way}})
	h.t.Cleanup(func() { _ = p.Close(); way.(*egress.Client).CloseIdleConnections() })
	return p
}

func echo(ctx context.Context, p *mcp.Provider) error {
	got, err := p.Call(ctx, upstream.Call{Call: "call_1", Tool: "echo", Args: json.RawMessage(`{"say":"hello"}`)})
	if err == nil && !strings.Contains(string(got.Content), "hello") {
		return fmt.Errorf("the answer is %s", got.Content)
	}
	return err
}

func (h *house) mustCall(p *mcp.Provider) {
	h.t.Helper()
	if err := echo(h.t.Context(), p); err != nil {
		h.t.Fatal(err)
	}
}

func TestLogin(t *testing.T) {
	for name, f := range map[string]oauthkit.Faults{
		"metadata by the refusal":      {},
		"metadata at the path":         {NoHeader: true},
		"metadata at the root":         {RootOnly: true},
		"a server that sends no iss":   {Iss: "-"},
		"a token endpoint that quotes": {Quote: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			h.server.Change(f)
			p := h.provider(0)
			if err := echo(t.Context(), p); problem.CodeOf(err) != problem.Unauthenticated || !strings.Contains(err.Error(), "execwarden connections login tickets") || upstream.Ambiguous(err) {
				t.Errorf("before the login: %v", err)
			}
			begun := h.begin()
			at, err := url.Parse(begun.URL)
			if err != nil {
				t.Fatal(err)
			}
			if q := at.Query(); q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" || !strings.HasPrefix(h.server.URL(), q.Get("resource")) || q.Get("scope") != "tickets:read" {
				t.Errorf("the login is at %s", begun.URL)
			}
			back := oauthkit.Browse(t, begun.URL)
			look, err := h.clients[1].Look(t.Context(), h.conn, back.Get("state"))
			if err != nil || look.By != "mem_owner" || look.Issuer != h.server.Issuer() {
				t.Errorf("%+v, %v", look, err)
			}
			// Begun at one broker, finished at the other.
			if err := h.clients[1].Finish(t.Context(), h.conn, finish(back)); err != nil {
				t.Fatal(err)
			}
			if ev := h.last(); ev.State != connection.LoggedIn || ev.Attempt != begun.Attempt || ev.By != "mem_owner" || ev.Failed {
				t.Errorf("%+v", ev)
			}
			h.mustCall(p)
			h.server.Expire()
			h.mustCall(h.provider(1)) // a 401 with a token that looks fresh
			for _, form := range h.server.Asked() {
				if form.Get("resource") != at.Query().Get("resource") {
					t.Errorf("docker/mcp-gateway#563: %s is asked for without its resource: %v", form.Get("grant_type"), form["resource"])
				}
			}
		})
	}
}

// What comes back and is not what was asked for gives no token, and is told.
func TestLoginThatIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		change func(url.Values)
		code   problem.Code
		told   bool // the login was ours, and failed
	}{
		"RFC 9207: another issuer":         {func(v url.Values) { v.Set("iss", "https://evil.example") }, problem.Denied, true},
		"RFC 9207: no issuer":              {func(v url.Values) { v.Del("iss") }, problem.Denied, true},
		"another state":                    {func(v url.Values) { v.Set("state", v.Get("state")+"x") }, problem.Expired, false},
		"no state":                         {func(v url.Values) { v.Del("state") }, problem.Expired, false},
		"another code":                     {func(v url.Values) { v.Set("code", "guessed") }, problem.Denied, true},
		"no code":                          {func(v url.Values) { v.Del("code") }, problem.Invalid, true},
		"a no":                             {func(v url.Values) { v.Del("code"); v.Set("error", "access_denied") }, problem.Denied, true},
		"a no in words that are not known": {func(v url.Values) { v.Del("code"); v.Set("error", "<script>") }, problem.Denied, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			begun := h.begin()
			back := oauthkit.Browse(t, begun.URL)
			c.change(back)
			err := h.clients[0].Finish(t.Context(), h.conn, finish(back))
			if problem.CodeOf(err) != c.code || strings.Contains(err.Error(), "<script>") {
				t.Errorf("%v", err)
			}
			if _, err := h.clients[0].Token(t.Context(), h.conn, ""); problem.CodeOf(err) != problem.Unauthenticated {
				t.Errorf("there is a token: %v", err)
			}
			if c.told {
				if ev := h.last(); !ev.Failed || ev.State != connection.LoginNeeded || ev.Attempt != begun.Attempt || ev.Reason == "" {
					t.Errorf("%+v", ev)
				}
			}
		})
	}
}

// A state works once, whoever is faster, and a failed attempt leaves the login that was there.
func TestStateWorksOnce(t *testing.T) {
	h := start(t)
	h.login()
	back := oauthkit.Browse(t, h.begin().URL)
	var racers sync.WaitGroup
	var won atomic.Int64
	for i := range 8 {
		racers.Go(func() {
			if err := h.clients[i%2].Finish(t.Context(), h.conn, finish(back)); err == nil {
				won.Add(1)
			} else if problem.CodeOf(err) != problem.Expired {
				t.Error(err)
			}
		})
	}
	racers.Wait()
	if won.Load() != 1 {
		t.Errorf("%d logins with one state", won.Load())
	}
	if _, err := h.clients[0].Look(t.Context(), h.conn, back.Get("state")); problem.CodeOf(err) != problem.Expired {
		t.Errorf("a used state: %v", err)
	}
	back = oauthkit.Browse(t, h.begin().URL)
	back.Set("iss", "https://evil.example")
	if err := h.clients[0].Finish(t.Context(), h.conn, finish(back)); err == nil {
		t.Error("another issuer is believed")
	}
	if ev := h.last(); !ev.Failed || ev.State != connection.LoggedIn {
		t.Errorf("a failed attempt: %+v", ev)
	}
	h.mustCall(h.provider(0))
}

// A connection that was given another URL since is another resource: the code is not traded, and tokens are not sent.
func TestAnotherURL(t *testing.T) {
	h := start(t)
	h.login()
	back := oauthkit.Browse(t, h.begin().URL)
	h.conn.URL = h.server.MCP.URL + "/other"
	if err := h.clients[0].Finish(t.Context(), h.conn, finish(back)); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("%v", err)
	}
	if _, err := h.clients[0].Token(t.Context(), h.conn, ""); problem.CodeOf(err) != problem.Unauthenticated {
		t.Errorf("%v", err)
	}
}

// Nor is it given the token that is being renewed for the URL of before.
func TestAnotherURLWhileATokenIsRenewed(t *testing.T) {
	h := start(t)
	h.login()
	h.server.Expire()
	old, err := h.clients[0].Token(t.Context(), h.conn, "")
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan struct{})
	h.server.Change(oauthkit.Faults{Hold: answer})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		if _, err := h.clients[0].Token(t.Context(), h.conn, old.Reveal()); err != nil {
			t.Error(err)
		}
	})
	buskit.Eventually(t, "the token is being renewed", func() bool { return h.lease() != "" })
	other := h.conn
	other.URL = h.server.MCP.URL + "/other"
	if _, err := h.clients[0].Token(t.Context(), other, old.Reveal()); problem.CodeOf(err) != problem.Unauthenticated {
		t.Errorf("the other URL is given a token: %v", err)
	}
	close(answer)
	renewing.Wait()
}

func TestServersThatAreRefused(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("an address inside is asked") }))
	defer inside.Close()
	for name, c := range map[string]struct {
		faults oauthkit.Faults
		code   problem.Code
		says   string
	}{
		"no S256":                                {oauthkit.Faults{NoS256: true}, problem.Upstream, "PKCE"},
		"no registration, and no client":         {oauthkit.Faults{NoRegister: true}, problem.Invalid, "client_id"},
		"metadata of another resource":           {oauthkit.Faults{Resource: "https://bank.example/mcp"}, problem.Upstream, "bank.example"},
		"metadata of a resource beside":          {oauthkit.Faults{Resource: "$MCP/other"}, problem.Upstream, "not below"},
		"another issuer":                         {oauthkit.Faults{Issuer: "https://evil.example"}, problem.Upstream, "calls itself"},
		"huge metadata":                          {oauthkit.Faults{Huge: true}, problem.TooLarge, "larger than"},
		"a token endpoint inside":                {oauthkit.Faults{TokenURL: inside.URL + "/token"}, problem.Denied, "private"},
		"a token endpoint at the cloud":          {oauthkit.Faults{TokenURL: "http://169.254.169.254/token"}, problem.Denied, "private"},
		"a token endpoint in the clear":          {oauthkit.Faults{TokenURL: "http://auth.example.com/token"}, problem.Denied, "https"},
		"a token endpoint with a password in it": {oauthkit.Faults{TokenURL: "https://a:b@auth.example.com/token"}, problem.Upstream, "no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			c.faults.Resource = strings.Replace(c.faults.Resource, "$MCP", h.server.MCP.URL, 1)
			h.server.Change(c.faults)
			_, err := h.clients[0].Begin(t.Context(), h.conn, "mem_owner", redirect, "")
			if problem.CodeOf(err) != c.code || !strings.Contains(problem.DetailOf(err).Message, c.says) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("an authorization server at an address that is not allowed", func(t *testing.T) {
		h := start(t)
		h.conn.Private = h.conn.Private[:1] // the MCP server's only
		if _, err := h.clients[0].Begin(t.Context(), h.conn, "mem_owner", redirect, ""); problem.CodeOf(err) != problem.Denied {
			t.Errorf("%v", err)
		}
	})
}

// Twenty calls at two brokers with a token that ended renew it once: a second time would end the login.
func TestRenewedOnce(t *testing.T) {
	for name, expire := range map[string]func(*house){
		"NangoHQ/nango#1005 the broker knows that it ended":        func(*house) {},
		"the-momentum/open-wearables#1433 the provider says so":    func(h *house) { h.server.Expire() },
		"NangoHQ/nango#1005 the token endpoint takes its time too": func(h *house) { h.server.Change(oauthkit.Faults{Slow: 300 * time.Millisecond}) },
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			h.server.Life = 5 * time.Second // within the margin: renewed before it is used
			if strings.Contains(name, "provider says") {
				h.server.Life = time.Hour
			}
			h.login()
			expire(h)
			h.server.Life = time.Hour
			providers := []*mcp.Provider{h.provider(0), h.provider(1)}
			var calls sync.WaitGroup
			for i := range 20 {
				calls.Go(func() {
					if err := echo(t.Context(), providers[i%2]); err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			if n, twice := h.server.Refreshed(); n != 1 || twice {
				t.Errorf("renewed %d times, a refresh token twice: %v", n, twice)
			}
		})
	}
}

// Keys may be rotated while a token is renewed: the entry is sealed anew then, and is the same.
func TestKeysRotateWhileATokenIsRenewed(t *testing.T) {
	h := start(t)
	h.login()
	old, err := h.clients[0].Token(t.Context(), h.conn, "")
	if err != nil {
		t.Fatal(err)
	}
	answer := make(chan struct{})
	h.server.Change(oauthkit.Faults{Hold: answer})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		if _, err := h.clients[0].Token(t.Context(), h.conn, old.Reveal()); err != nil {
			t.Error(err)
		}
	})
	buskit.Eventually(t, "the token is being renewed", func() bool { return h.lease() != "" })
	s, revision, err := h.vault.Read(t.Context(), h.conn.Tenant, "oauth.con_tickets")
	if err == nil {
		_, err = h.vault.Swap(t.Context(), h.conn.Tenant, "oauth.con_tickets", s, revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	close(answer)
	renewing.Wait()
	h.server.Change(oauthkit.Faults{})
	h.mustCall(h.provider(1))
	if n, twice := h.server.Refreshed(); n != 1 || twice || len(h.server.Revoked()) != 0 {
		t.Errorf("renewed %d times, twice with one token: %v, revoked %v", n, twice, h.server.Revoked())
	}
}

// A refresh token that is refused ends the login, which is told; the next login mends it.
func TestRefusedRenewal(t *testing.T) {
	h := start(t)
	h.login()
	p := h.provider(0)
	h.mustCall(p)
	h.server.Change(oauthkit.Faults{Revoked: true, Quote: true})
	h.server.Expire()
	for range 2 {
		err := echo(t.Context(), p)
		if problem.CodeOf(err) != problem.Unauthenticated || upstream.Ambiguous(err) || !strings.Contains(problem.DetailOf(err).Message, "execwarden connections login tickets") {
			t.Errorf("%v, ambiguous %v", err, upstream.Ambiguous(err))
		}
	}
	if ev := h.last(); ev.State != connection.LoginNeeded || !strings.Contains(ev.Reason, "invalid_grant") || ev.Failed {
		t.Errorf("%+v", ev)
	}
	asked := len(h.server.Asked())
	_ = echo(t.Context(), p)
	if n := len(h.server.Asked()); n != asked {
		t.Error("a server that said no is asked again")
	}
	h.server.Change(oauthkit.Faults{})
	h.login()
	h.mustCall(p)
}

// A token endpoint that does not answer is no refusal: the tokens stay, and the next call tries again.
func TestTokenEndpointAway(t *testing.T) {
	h := start(t)
	h.login()
	p := h.provider(0)
	h.server.Expire()
	h.server.Change(oauthkit.Faults{Unavailable: 2}) // the SDK connects in two ways
	if err := echo(t.Context(), p); problem.CodeOf(err) != problem.Unavailable || upstream.Ambiguous(err) {
		t.Errorf("%v", err)
	}
	h.mustCall(p)
	if ev := h.last(); ev.State != connection.LoggedIn {
		t.Errorf("%+v", ev)
	}
	if got := strings.Join(h.counted, " "); got != "failed failed renewed" {
		t.Errorf("counted: %s", got)
	}
}

// crashing is a vault that a broker's end cuts off.
type crashing struct {
	*vault.Vault
	swaps atomic.Int64
	at    int64 // the swap before which the broker ends, counted from 1; 0: none
	after bool  // the swap is kept, and the broker does not live to see it
}

func (c *crashing) Swap(ctx context.Context, tenant id.Tenant, name string, s vault.Secret, revision uint64) (uint64, error) {
	if c.swaps.Add(1) != c.at {
		return c.Vault.Swap(ctx, tenant, name, s, revision)
	}
	if c.after {
		_, _ = c.Vault.Swap(ctx, tenant, name, s, revision)
	}
	return 0, problem.New(problem.Internal, "the broker is killed")
}

// A broker that ends in the middle of a renewal: whoever comes next goes on when the lease has lapsed.
func TestBrokerEndsInRenewal(t *testing.T) {
	for name, c := range map[string]struct {
		at    int64
		after bool
		spent bool // the refresh token is spent and what it gave is lost
	}{
		"before the lease is kept":                        {1, false, false},
		"after the lease is kept":                         {1, true, false},
		"after the token endpoint answered, not sealed":   {2, false, true},
		"after the token endpoint answered, it is sealed": {2, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t)
			h.login()
			h.server.Expire()
			dying := oauth.New(&crashing{Vault: h.vault, at: c.at, after: c.after}, h.say, h.count, slog.New(slog.DiscardHandler))
			t.Cleanup(dying.Close)
			old, err := h.clients[0].Token(t.Context(), h.conn, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := dying.Token(t.Context(), h.conn, old.Reveal()); err == nil {
				t.Fatal("the broker did not end")
			}
			h.clients[1].Lapse(time.Minute) // its clock is past the lease
			_, err = h.clients[1].Token(t.Context(), h.conn, old.Reveal())
			n, twice := h.server.Refreshed()
			if c.spent != (err != nil) || c.spent != twice || n != 1 {
				t.Errorf("%v; renewed %d times, twice with one token: %v", err, n, twice)
			}
			if c.spent && problem.CodeOf(err) != problem.Unauthenticated {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestClientCredentials(t *testing.T) {
	h := start(t)
	h.conn.OAuth = connection.OAuth{Flow: connection.ClientCredentials, ClientID: oauthkit.ClientID, Scopes: []string{"tickets:read"}}
	put := func(secret string) {
		t.Helper()
		var err error
		if h.conn.Credential, err = h.vault.Put(t.Context(), h.conn.Tenant, "con_tickets", vault.NewSecret(secret)); err != nil {
			t.Fatal(err)
		}
	}
	put("wrong")
	err := echo(t.Context(), h.provider(0))
	if problem.CodeOf(err) != problem.Unauthenticated || !strings.Contains(err.Error(), "invalid_client") || !strings.Contains(err.Error(), "execwarden apply") {
		t.Errorf("%v", err)
	}
	if ev := h.last(); ev.State != connection.LoginNeeded {
		t.Errorf("%+v", ev)
	}
	put(oauthkit.Secret) // mends it
	var calls sync.WaitGroup
	for i := range 20 {
		p := h.provider(i % 2)
		calls.Go(func() {
			if err := echo(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n, _ := h.server.Refreshed(); n != 1 {
		t.Errorf("%d tokens for 20 calls", n)
	}
	if ev := h.last(); ev.State != connection.LoggedIn {
		t.Errorf("%+v", ev)
	}
	if _, err := h.clients[0].Begin(t.Context(), h.conn, "mem_owner", redirect, ""); problem.CodeOf(err) != problem.Invalid {
		t.Errorf("somebody logs in for a client: %v", err)
	}
}

// A client's secret is for the authorization server that took it: a provider that names another does not get it sent there.
func TestSecretIsForOneServer(t *testing.T) {
	h := start(t)
	other := oauthkit.Start(t)
	h.conn.Private = append(h.conn.Private, other.Private()...)
	h.conn.OAuth = connection.OAuth{Flow: connection.ClientCredentials, ClientID: oauthkit.ClientID}
	put := func(secret string) {
		t.Helper()
		var err error
		if h.conn.Credential, err = h.vault.Put(t.Context(), h.conn.Tenant, "con_tickets", vault.NewSecret(secret)); err != nil {
			t.Fatal(err)
		}
	}
	put(oauthkit.Secret)
	h.mustCall(h.provider(0))
	h.server.Change(oauthkit.Faults{Server: other.Issuer()})
	h.server.Expire()
	if err := echo(t.Context(), h.provider(1)); problem.CodeOf(err) != problem.Unauthenticated || !strings.Contains(err.Error(), other.Issuer()) {
		t.Errorf("%v", err)
	}
	if asked := other.Asked(); len(asked) != 0 {
		t.Errorf("the other server is asked: %v", asked)
	}
	// Another secret is given for the server of now.
	put("another")
	if _, err := h.clients[0].Token(t.Context(), h.conn, ""); problem.CodeOf(err) != problem.Unauthenticated || len(other.Asked()) != 1 {
		t.Errorf("%v, asked %v", err, other.Asked())
	}
}

// A client that was registered by hand logs in as such, and one that registers itself does so once.
func TestClients(t *testing.T) {
	h := start(t)
	first, second := h.begin(), h.begin()
	client := func(b ask.LoginBegun) string {
		u, err := url.Parse(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		return u.Query().Get("client_id")
	}
	if client(first) != client(second) || client(first) == "" {
		t.Errorf("clients %s and %s", client(first), client(second))
	}
	h.login()
	if again := h.begin(); client(again) != client(first) {
		t.Errorf("registered again: %s", client(again))
	}
	h.server.Change(oauthkit.Faults{NoRegister: true})
	h.conn.OAuth.ClientID = oauthkit.ClientID
	var err error
	if h.conn.Credential, err = h.vault.Put(t.Context(), h.conn.Tenant, "con_tickets", vault.NewSecret(oauthkit.Secret)); err != nil {
		t.Fatal(err)
	}
	if by := h.begin(); client(by) != oauthkit.ClientID {
		t.Errorf("logs in as %s", client(by))
	}
	h.login()
	h.mustCall(h.provider(0))
}

// A connection that is removed has no token any more, anywhere, from that moment on.
func TestDisconnect(t *testing.T) {
	t.Run("initializ/forge#380 a removed connection has no cached token", func(t *testing.T) {
		h := start(t)
		h.login()
		providers := []*mcp.Provider{h.provider(0), h.provider(1)}
		for _, p := range providers {
			h.mustCall(p)
		}
		if err := h.clients[0].Disconnect(t.Context(), h.conn, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		h.mustCall(providers[0]) // a login of after the end is of a new definition
		if err := h.clients[0].Disconnect(t.Context(), h.conn, time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		for i, p := range providers {
			if err := echo(t.Context(), p); problem.CodeOf(err) != problem.Unauthenticated {
				t.Errorf("broker %d: %v", i, err)
			}
		}
		if revoked := strings.Join(h.server.Revoked(), " "); !strings.Contains(revoked, "access-canary") || !strings.Contains(revoked, "refresh-canary") {
			t.Errorf("revoked: %q", revoked)
		}
		kv, err := h.kit.Boot.JS.KeyValue(t.Context(), "secrets")
		if err != nil {
			t.Fatal(err)
		}
		keys, err := kv.Keys(t.Context())
		if err != nil || len(keys) != 1 { // the tenant's key
			t.Errorf("sealed: %v, %v", keys, err)
		}
		if ev := h.last(); ev.State != connection.LoginNeeded {
			t.Errorf("%+v", ev)
		}
		if err := h.clients[1].Disconnect(t.Context(), h.conn, time.Now().Add(time.Second)); err != nil {
			t.Errorf("again: %v", err)
		}
	})
	t.Run("while its token is renewed", func(t *testing.T) {
		h := start(t)
		h.login()
		old, err := h.clients[0].Token(t.Context(), h.conn, "")
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan struct{})
		h.server.Change(oauthkit.Faults{Hold: answer})
		var renewing sync.WaitGroup
		renewing.Go(func() {
			if _, err := h.clients[0].Token(t.Context(), h.conn, old.Reveal()); problem.CodeOf(err) != problem.Unauthenticated {
				t.Errorf("renewed after the end: %v", err)
			}
		})
		buskit.Eventually(t, "the token is being renewed", func() bool { return h.lease() != "" })
		if err := h.clients[1].Disconnect(t.Context(), h.conn, time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		close(answer)
		renewing.Wait()
		if _, _, err := h.vault.Read(t.Context(), h.conn.Tenant, "oauth.con_tickets"); problem.CodeOf(err) != problem.NotFound {
			t.Errorf("it is back: %v", err)
		}
		if got := strings.Join(h.server.Revoked(), " "); strings.Count(got, "refresh-canary") != 2 {
			t.Errorf("revoked: %s", got)
		}
	})
}

// lease gives the holder of the lease on the entry, if there is one.
func (h *house) lease() string {
	s, err := h.vault.Get(h.t.Context(), h.conn.Tenant, "oauth.con_tickets")
	if err != nil {
		h.t.Fatal(err)
	}
	var e struct{ Lease struct{ Holder string } }
	if err := json.Unmarshal([]byte(s.Reveal()), &e); err != nil {
		h.t.Fatal(err)
	}
	return e.Lease.Holder
}

// Nothing that is told, logged or answered holds a secret, even when servers quote what they were sent.
func TestSecretsStayInside(t *testing.T) {
	h := start(t)
	var said bytes.Buffer
	h.login()
	p := h.provider(0)
	h.mustCall(p)
	h.server.Change(oauthkit.Faults{Quote: true, Revoked: true})
	for range 3 {
		h.server.Expire()
		if err := echo(t.Context(), p); err != nil {
			fmt.Fprintf(&said, "%v %+v %#v\n", err, err, problem.DetailOf(err))
		}
		back := oauthkit.Browse(t, h.begin().URL)
		back.Set("code", "code-canary-guessed")
		if err := h.clients[0].Finish(t.Context(), h.conn, finish(back)); err != nil {
			fmt.Fprintf(&said, "%v %+v\n", err, err)
		}
	}
	if err := h.clients[0].Disconnect(t.Context(), h.conn, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ev := range h.told {
		raw, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(raw)
	}
	_, _ = io.Copy(&said, &h.logs)
	if said.Len() < 500 {
		t.Errorf("only %d bytes were looked at", said.Len())
	}
	for _, secret := range h.server.Secrets() {
		if strings.Contains(said.String(), secret) || strings.Contains(said.String(), url.QueryEscape(secret)) {
			t.Errorf("%.20s… stands in\n%s", secret, said.String())
		}
	}
}
