package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/gateway/internal/api"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/console"
	"github.com/execwarden/execwarden/services/gateway/internal/control"
	"github.com/execwarden/execwarden/services/gateway/internal/edge"
	"github.com/execwarden/execwarden/services/gateway/internal/follow"
	"github.com/execwarden/execwarden/services/gateway/internal/issuer"
	"github.com/execwarden/execwarden/services/gateway/internal/mcp"
	"github.com/execwarden/execwarden/services/gateway/internal/oauth"
	"github.com/execwarden/execwarden/services/gateway/internal/peers"
)

// Service is the gateway.
type Service struct {
	cfg   Config
	deps  boot.Deps
	log   *slog.Logger
	state *control.State
	view  *eventlog.View
	hub   atomic.Pointer[follow.Hub] // set before anybody is let in

	endpoint atomic.Pointer[mcp.Endpoint] // the same

	documents egress.Rule // how clients' documents and issuers' keys are fetched beyond the usual; for tests, which have roots of their own

	ready chan struct{} // closed once addr is set
	addr  net.Addr
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, state: control.New(), ready: make(chan struct{})}
	s.view = deps.View(s.apply)
	return s, nil
}

// Addr waits until the service takes requests and gives the address on which it does. A service that has ended never
// does again.
func (s *Service) Addr(ctx context.Context) (net.Addr, error) {
	select {
	case <-s.ready:
		return s.addr, nil
	case <-ctx.Done():
		return nil, problem.Wrap(ctx.Err(), problem.Timeout, "the gateway does not take requests yet")
	}
}

// Run works until ctx ends and running requests have been answered. It may be called once.
func (s *Service) Run(ctx context.Context) error {
	people, err := auth.OpenPeople(ctx, s.deps.Conn, s.deps.Log)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return s.serve(ctx, people) })
	return group.Wait()
}

func (s *Service) serve(ctx context.Context, people *auth.People) error {
	var heard uint64
	if s.cfg.OwnerTokenFile != "" {
		var err error
		if heard, err = people.EnsureOwner(ctx, s.cfg.OwnerTokenFile); err != nil {
			return err
		}
	}
	questions, err := rpc.Serve(s.deps.Conn, s.deps.Service, s.deps.Version, s.log, barrier.Answer(s.view))
	if err != nil {
		return err
	}
	defer questions.Close()
	// Nobody is let in before it is known who is who.
	if err := s.view.Wait(ctx, heard); err != nil {
		return nil // only the end of ctx ends the wait
	}
	listener, err := boot.Listen("listen", s.cfg.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // also after serving, which has closed it then
	handler, stop, err := s.handler(people, listener.Addr())
	if err != nil {
		return err
	}
	defer stop()
	s.addr = listener.Addr()
	close(s.ready)
	s.deps.Arrived()
	s.log.Info("gateway", "listen", s.addr.String(), "url", s.cfg.site(s.addr).String())
	return boot.Serve(ctx, listener, handler, s.log)
}

// handler puts the faces together.
func (s *Service) handler(people *auth.People, addr net.Addr) (h http.Handler, stop func(), err error) {
	site := edge.NewSite(s.cfg.site(addr), s.cfg.hosts())
	gate := auth.NewGate(people, members{s.state, s.view}, site.Secure())
	peers := peers.New(s.deps.Conn, s.deps.Log, s.view)
	hub := follow.New(peers, gate.Recheck, s.cfg.MaxTails)
	s.hub.Store(hub)

	mux := http.NewServeMux()
	documents, err := oauth.NewDocuments(s.cfg.documentsPrivate(), s.documents)
	if err != nil {
		return nil, nil, err
	}
	listed, err := issuer.Load(s.cfg.IssuersFile)
	if err != nil {
		return nil, nil, err
	}
	issuers := issuer.New(listed, s.documents)
	server := &oauth.Server{Issuers: issuer.Advertised(listed), Site: site, State: s.state, People: people, Members: members{s.state, s.view}, Peers: peers, Log: s.deps.Log, Note: s.log, Documents: documents, Expect: gate.Expect}
	gate.Issued = issued{members{s.state, s.view}, issuers, server.Covers}
	server.Register(mux)
	(&api.API{Gate: gate, Site: site, State: s.state, People: people, Peers: peers, Hub: hub, OAuth: server, Log: s.deps.Log, Note: s.log}).Register(mux)
	(&console.Console{Gate: gate, Site: site, Peers: peers, Hub: hub, State: s.state, OAuth: server, Note: s.log}).Register(mux)
	mux.Handle(api.ConnectRoute, s.connectors())
	endpoint := &mcp.Endpoint{Gate: gate, Site: site, State: s.state, Conn: s.deps.Conn, Log: s.deps.Log, Version: s.deps.Version, Note: s.log, Covers: server.Covers,
		Limits: mcp.Limits{AtOnce: s.cfg.MCPCalls, Rate: s.cfg.MCPRate, Burst: s.cfg.MCPBurst, Sessions: s.cfg.MCPSessions, SessionIdle: 30 * time.Minute, CallLife: 30 * time.Second, HeldWait: s.cfg.MCPHeldWait, TaskAfter: s.cfg.MCPTaskAfter}}
	endpoint.Register(mux)
	if h, err = edge.Handler(site, mux, s.deps.Metrics); err != nil {
		return nil, nil, err
	}
	err = s.deps.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "execwarden_event_streams", Help: "Event streams that are open.",
	}, func() float64 { return float64(hub.Readers()) }))
	if err != nil {
		return nil, nil, err
	}
	shut, err := endpoint.Open()
	if err != nil {
		return nil, nil, err
	}
	s.endpoint.Store(endpoint)
	deaf, err := hub.Listen(s.deps.Conn)
	if err != nil {
		shut()
		return nil, nil, err
	}
	return h, func() { deaf(); shut(); documents.Close(); issuers.Close() }, nil
}

func (s *Service) apply(e eventlog.Stored) {
	if err := s.state.Apply(e); err != nil {
		s.log.Warn("control event not applied", "seq", e.Seq, "err", err)
	}
	if hub := s.hub.Load(); hub != nil && (e.At.Noun == "member" || e.At.Noun == "token") {
		hub.Doubt(e.At.Tenant)
	}
	if endpoint := s.endpoint.Load(); endpoint != nil {
		endpoint.Apply(e)
	}
}

// members answers who is a member from the view. While it is behind, nobody is: whoever seems to be one may have been
// removed meanwhile.
type members struct {
	state *control.State
	view  *eventlog.View
}

func (m members) Role(tenant id.Tenant, who id.Member, with id.Token) (member.Role, error) {
	if err := m.view.Current(); err != nil {
		return "", err
	}
	token, known := m.state.Token(tenant, with)
	role, ok := m.state.Role(tenant, who)
	switch {
	case !ok:
		return "", problem.New(problem.Unauthenticated, "the member of this access token is not there any more")
	case !known || token.Member != who:
		return "", problem.New(problem.Unauthenticated, "the access token is not valid")
	case token.Revoked:
		return "", problem.New(problem.Unauthenticated, "the access token was revoked")
	}
	return role, nil
}

// Agent answers of external agents as Role does of members.
func (m members) Agent(tenant id.Tenant, a id.Agent, with id.Token) error {
	if err := m.view.Current(); err != nil {
		return err
	}
	token, known := m.state.Token(tenant, with)
	def, there := m.state.Agent(tenant, a)
	switch {
	case !known || token.Agent != a:
		return problem.New(problem.Unauthenticated, "the access token is not valid")
	case token.Revoked:
		return problem.New(problem.Unauthenticated, "the access token was revoked")
	case !there || def.Hosting != agent.External:
		return problem.New(problem.Unauthenticated, "the agent of this access token is not there any more, or is hosted")
	case token.Client != "":
		if _, there := m.state.Client(tenant, token.Client); !there {
			return problem.New(problem.Unauthenticated, "the client of this access token was removed")
		}
	}
	return nil
}

// issued takes the tokens of issuers that the operator named.
type issued struct {
	members
	issuers *issuer.Issuers
	covers  func(resource, path string) bool
}

func (i issued) Looks(text string) bool { return i.issuers.Looks(text) }

// Agent believes an issuer about which agent a token is of; that there is such an agent, the control stream says.
func (i issued) Agent(ctx context.Context, text, path string) (auth.Agent, error) {
	c, err := i.issuers.Verify(ctx, text, func(audience string) bool { return i.covers(audience, path) })
	if err == nil {
		err = i.view.Current()
	}
	if err != nil {
		return auth.Agent{}, err
	}
	if def, there := i.state.Agent(c.Tenant, c.Agent); !there || def.Hosting != agent.External {
		return auth.Agent{}, problem.New(problem.Unauthenticated, "the token is valid, and there is no external agent %s", id.Name(c.Agent))
	}
	return auth.Agent{Tenant: c.Tenant, Agent: c.Agent, Token: c.Token, Issuer: c.Issuer, ExpiresAt: c.ExpiresAt}, nil
}

var _ boot.Service = (*Service)(nil)
