package agentloop

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/tenant"
)

// Config is the loop's own settings.
type Config struct {
	ModelTimeout time.Duration `name:"model_timeout" default:"5m" help:"longest that one model call may take"`
	CallLife     time.Duration `name:"call_life" default:"1m" help:"how old a tool call may be when the broker first sees it"`
}

func (c Config) validate() error {
	switch {
	case c.ModelTimeout <= 0 || c.ModelTimeout > time.Hour:
		return problem.New(problem.Invalid, "model_timeout %s is outside (0, 1h]", c.ModelTimeout)
	case c.CallLife < time.Second || c.CallLife > time.Hour:
		return problem.New(problem.Invalid, "call_life %s is outside [1s, 1h]", c.CallLife)
	}
	return nil
}

// Service is the agent loop.
type Service struct {
	cfg     Config
	deps    boot.Deps
	log     *slog.Logger
	now     func() time.Time
	view    *eventlog.View
	runs    *runs
	agents  eventlog.Latest[agent.Defined]
	tenants eventlog.Latest[tenant.Created]
	metrics metrics
	models  *egress.Origins
	vault   *vault.Vault // set by Run, before anything is heard
}

type metrics struct {
	ended  *prometheus.CounterVec
	models *prometheus.HistogramVec
	tokens *prometheus.CounterVec
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, now: time.Now, runs: newRuns(deps.Log)}
	s.view = deps.View(func(e eventlog.Stored) { s.agents.Apply(e); s.tenants.Apply(e) }, agent.Defined{}.Kind(), tenant.Created{}.Kind())
	// A model's answer streams for minutes; the request's context bounds it.
	s.models = egress.NewOrigins(egress.Rule{Methods: []string{http.MethodPost}, MaxBytes: 64 << 20, Timeout: -1, MaxRedirects: -1})
	s.metrics = metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "execwarden_runs_ended_total", Help: "Runs that ended, by state."}, []string{"state"}),
		models: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gen_ai_client_operation_duration_seconds",
			Help: "Time of model calls, by protocol and result.", Buckets: prometheus.ExponentialBuckets(0.01, 3, 9)}, []string{"protocol", "result"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gen_ai_client_token_usage_total", Help: "Tokens used, by type."}, []string{"type"}),
	}
	for _, c := range []prometheus.Collector{s.metrics.ended, s.metrics.models, s.metrics.tokens} {
		if err := deps.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run works until ctx ends. A run that is in the middle of something is handed back and goes on elsewhere, or here
// after the next start.
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
	router.Hear("agentloop_run", s.onRun)
	router.Hear("agentloop_call", s.onCall)
	defer s.models.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	return group.Wait()
}

var _ boot.Service = (*Service)(nil)
