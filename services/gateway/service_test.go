package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/testkit/buskit"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/roster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a gateway on a real bus, with stand-ins for the services that it asks.
type house struct {
	*peersFake
	bus *buskit.Bus

	tokenFile string
	base      string
	owner     string // a token
	people    *auth.People
	log       *eventlog.Log
	client    *http.Client
	stop      func()
	documents egress.Rule
}

func start(t *testing.T) *house {
	t.Helper()
	t.Parallel()
	b := buskit.Start(t)
	h := &house{bus: b, peersFake: newPeers(t, b)}
	h.run(t, Config{Listen: "127.0.0.1:0", MaxTails: 30, MCPCalls: 64, MCPRate: 50, MCPBurst: 100, MCPSessions: 2000, MCPHeldWait: time.Second, OwnerTokenFile: filepath.Join(t.TempDir(), "owner.token")})
	return h
}

// run starts a gateway on the house's bus.
func (h *house) run(t *testing.T, cfg Config) {
	t.Helper()
	conn := h.bus.Conn(t, string(schemas.Gateway))
	h.log = eventlog.New(conn)
	s, err := New(cfg, boot.Deps{
		Service: schemas.Gateway, Version: "0.0.0", Conn: conn, Log: h.log, Logger: h.bus.Log,
		Metrics: prometheus.NewRegistry(), Health: boot.NewHealth(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.documents = h.documents
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{}
	h.stop = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		cancel()
		running.Wait()
	})
	t.Cleanup(h.stop)
	within, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	addr, err := s.Addr(within)
	if err != nil {
		t.Fatal(err)
	}
	h.base = "http://" + addr.String()
	h.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	h.tokenFile = cfg.OwnerTokenFile
	text, err := os.ReadFile(cfg.OwnerTokenFile)
	if err != nil {
		t.Fatal(err)
	}
	h.owner = strings.TrimSpace(string(text))
	if h.people, err = auth.OpenPeople(t.Context(), conn, h.log); err != nil {
		t.Fatal(err)
	}
}

// token makes a member with a role, in a tenant, and gives a token of theirs.
func (h *house) token(t *testing.T, tenant id.Tenant, role member.Role, expires time.Time) string {
	t.Helper()
	who := id.Member("mem_" + string(role))
	h.member(t, tenant, who, role)
	secret := auth.NewToken()
	m := auth.Membership{Tenant: tenant, Member: who, Role: role, ExpiresAt: expires}
	if _, err := h.people.Admit(t.Context(), secret, m); err != nil {
		t.Fatal(err)
	}
	if expires.IsZero() {
		buskit.Eventually(t, "the token works", func() bool { return h.call(t, secret.Reveal(), "GET", "/v1/whoami", "").status == 200 })
	}
	return secret.Reveal()
}

// member says that somebody is a member with a role, as the deployment itself does.
func (h *house) member(t *testing.T, tenant id.Tenant, who id.Member, role member.Role) {
	t.Helper()
	_, err := roster.Change(t.Context(), h.log, tenant, "service:gateway", who, func(*roster.Roster) (schemas.Event, error) {
		return member.Added{Member: who, Role: role}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

// call makes a request with a token, if any, and a JSON body, if any.
func (h *house) call(t *testing.T, token, method, path, body string) answer {
	t.Helper()
	return h.send(t, method, path, body, func(r *http.Request) {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
	})
}

func (h *house) send(t *testing.T, method, path, body string, shape func(*http.Request)) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	shape(r)
	resp, err := h.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(bytes.TrimSpace(out))}
}
