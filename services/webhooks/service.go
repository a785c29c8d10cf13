package webhooks

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/tenant"
	"github.com/execwarden/execwarden/schemas/trigger"
)

// Config is the service's own settings.
type Config struct {
	Listen string `name:"listen" default:"127.0.0.1:8081" help:"address that takes deliveries, at /hooks/<tenant>/<hook>"`
	// Concurrent is how many deliveries are read at once. More are answered 503, which GitHub shows as failed. Each
	// may hold 25 MiB.
	Concurrent int `name:"concurrent" default:"16" help:"deliveries read at once"`
}

func (c Config) validate() error {
	if c.Concurrent < 1 || c.Concurrent > 1024 {
		return problem.New(problem.Invalid, "concurrent %d is outside [1, 1024]", c.Concurrent)
	}
	return nil
}

// Service takes deliveries and starts runs.
type Service struct {
	cfg      Config
	deps     boot.Deps
	log      *slog.Logger
	now      func() time.Time
	view     *eventlog.View
	slots    chan struct{}
	triggers eventlog.Latest[trigger.Defined]
	tenants  eventlog.Latest[tenant.Created]
	count    *prometheus.CounterVec
	vault    *vault.Vault  // set by Run, before anything is heard
	ready    chan struct{} // closed once addr is set
	addr     net.Addr
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, now: time.Now, slots: make(chan struct{}, cfg.Concurrent), ready: make(chan struct{})}
	s.view = deps.View(func(e eventlog.Stored) { s.triggers.Apply(e); s.tenants.Apply(e) }, trigger.Defined{}.Kind(), tenant.Created{}.Kind())
	s.count = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "execwarden_webhook_deliveries_total", Help: "Deliveries, by answer."}, []string{"answer"})
	return s, deps.Metrics.Register(s.count)
}

// Addr waits until the service takes deliveries and gives the address on which it does.
func (s *Service) Addr(ctx context.Context) (net.Addr, error) {
	select {
	case <-s.ready:
		return s.addr, nil
	case <-ctx.Done():
		return nil, problem.Wrap(ctx.Err(), problem.Timeout, "the webhook endpoint does not take deliveries yet")
	}
}

// Run works until ctx ends and the deliveries being read are answered.
func (s *Service) Run(ctx context.Context) (err error) {
	if s.vault, err = vault.Open(ctx, s.deps.Conn, s.deps.Master); err != nil {
		return err
	}
	questions, err := s.answer()
	if err != nil {
		return err
	}
	defer questions.Close()
	router, err := s.deps.Router()
	if err != nil {
		return err
	}
	router.Hear("webhooks_hook", s.onReceived)
	listener, err := boot.Listen("listen", s.cfg.Listen)
	if err != nil {
		return err
	}
	s.addr = listener.Addr()
	close(s.ready)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return boot.Serve(ctx, listener, s.handler(), s.log) })
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	return group.Wait()
}

var _ boot.Service = (*Service)(nil)
