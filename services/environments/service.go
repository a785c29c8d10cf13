package environments

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/services/environments/internal/callout"
	"github.com/execwarden/execwarden/services/environments/internal/registry"
)

// Config is the service's own settings.
type Config struct {
	CalloutSeed vault.Secret // of the account key in whose name connectors are let onto the bus; overrides the file

	CalloutSeedFile string        `name:"callout_seed_file" help:"file with the seed of the NATS account key in whose name connectors are let onto the bus"`
	GiveUpAfter     time.Duration `name:"give_up_after" default:"10m" help:"how long a call waits for a machine that does not answer"`
	LeaseLife       time.Duration `name:"lease_life" default:"60s" help:"how long a machine works on without hearing from the registry; it beats six times in that, and counts as away after half of it"`
	LostAfter       time.Duration `name:"lost_after" default:"1h" help:"how long a machine may be away before its attachments count as lost"`
}

func (c Config) validate() error {
	switch {
	case c.GiveUpAfter < time.Second || c.GiveUpAfter > 24*time.Hour:
		return problem.New(problem.Invalid, "give_up_after %s is outside [1s, 24h]", c.GiveUpAfter)
	case connector.Life(c.LeaseLife) != connector.Life(c.LeaseLife).Or():
		return problem.New(problem.Invalid, "lease_life %s is outside [%s, %s]", c.LeaseLife, connector.MinLife.Duration(), connector.MaxLife.Duration())
	case c.LostAfter < c.LeaseLife:
		return problem.New(problem.Invalid, "lost_after %s is below lease_life %s", c.LostAfter, c.LeaseLife)
	}
	return nil
}

func (c Config) seed() (vault.Secret, error) {
	if !c.CalloutSeed.Empty() {
		return c.CalloutSeed, nil
	}
	text, err := keyfile.Read(c.CalloutSeedFile)
	if err != nil {
		return vault.Secret{}, problem.Wrap(err, problem.Invalid, "callout_seed_file %q cannot be read", c.CalloutSeedFile)
	}
	return vault.NewSecret(text), nil
}

// Service is the environment registry.
type Service struct {
	cfg      Config
	deps     boot.Deps
	log      *slog.Logger
	view     *eventlog.View
	gate     *executor.Gate
	registry registry.Registry
	presence presence
	desk     *callout.Desk
	now      func() time.Time

	orders   *prometheus.HistogramVec
	callouts *prometheus.CounterVec
	online   *prometheus.GaugeVec
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, now: time.Now, presence: presence{since: time.Now()}}
	seed, err := cfg.seed()
	if err != nil {
		return nil, err
	}
	s.desk, err = callout.New(seed, func(nkey string) (id.Tenant, id.Environment, bool) {
		at, ok := s.registry.ByKey(nkey)
		return at.Tenant, at.Environment, ok
	})
	if err != nil {
		return nil, problem.Wrap(err, problem.Invalid, "callout_seed_file: %v", err)
	}
	s.gate = executor.New(call.Exec, deps.Conn, deps.Log, deps.Root)
	s.view = deps.View(s.apply, append(executor.Kinds(), registry.Kinds()...)...)
	s.gate.Follow(s.view)
	s.orders = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "execwarden_machine_order_seconds", Help: "Time of calls on machines, by how they ended.", Buckets: prometheus.ExponentialBuckets(0.005, 4, 9),
	}, []string{"result"})
	s.callouts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "execwarden_connector_logins_total", Help: "Connectors that asked to be let onto the bus.",
	}, []string{"verdict"})
	s.online = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "execwarden_environment_online", Help: "1 for an environment whose machine works, 0 for one whose machine does not.",
	}, []string{"tenant", "environment"})
	for _, c := range []prometheus.Collector{s.orders, s.callouts, s.online} {
		if err := deps.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// onlineValue is the gauge's number for a state.
func onlineValue(p ask.Presence) float64 {
	if p == ask.Online {
		return 1
	}
	return 0
}

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	if err := s.gate.OpenClaims(ctx); err != nil {
		return err
	}
	stop, err := s.hear(ctx)
	if err != nil {
		return err
	}
	defer stop()
	questions, err := s.answer()
	if err != nil {
		return err
	}
	defer questions.Close()
	router, err := s.deps.Router()
	if err != nil {
		return err
	}
	router.Hear("environments_admitted", s.onAdmitted)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.gate.HearCancellations(ctx) })
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return s.keepLeases(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	return group.Wait()
}

func (s *Service) apply(e eventlog.Stored) {
	if err := s.gate.Apply(e); err != nil {
		s.log.Error("key not trusted", "seq", e.Seq, "err", err)
	}
	s.registry.Apply(e)
}

var _ boot.Service = (*Service)(nil)
