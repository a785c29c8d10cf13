package ledger

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/ledger/internal/store"
)

// Config is the ledger's own settings.
type Config struct {
	PostgresURL     string        `name:"postgres_url" help:"PostgreSQL database of the ledger; prefer postgres_url_file when it holds a password"`
	PostgresURLFile string        `name:"postgres_url_file" help:"file with the URL of the database"`
	SigningKeyFile  string        `name:"ledger_key_file" help:"file with the key that signs checkpoints (Ed25519 seed, base64), mode 0600; made when there is none"`
	Deployment      string        `name:"deployment" default:"execwarden" help:"name of this deployment in checkpoints"`
	CheckpointEvery time.Duration `name:"checkpoint_every" default:"10s" help:"how often grown trees are signed"`
}

func (c Config) validate() error {
	switch {
	case (c.PostgresURL == "") == (c.PostgresURLFile == ""):
		return problem.New(problem.Invalid, "one of postgres_url and postgres_url_file is required")
	case c.SigningKeyFile == "":
		return problem.New(problem.Invalid, "ledger_key_file is required")
	case c.Deployment == "" || strings.ContainsAny(c.Deployment, "/+ \n"):
		return problem.New(problem.Invalid, "deployment %q is not a plain name", c.Deployment)
	case c.CheckpointEvery < 100*time.Millisecond:
		return problem.New(problem.Invalid, "checkpoint_every %s is under 100ms", c.CheckpointEvery)
	}
	return nil
}

// streams are those that have trees.
var streams = []schemas.Stream{schemas.Control, schemas.Activity}

// Service is the ledger.
type Service struct {
	cfg     Config
	deps    boot.Deps
	log     *slog.Logger
	key     ed25519.PrivateKey
	store   *store.Store // set by Run, before anything else starts
	metrics metrics

	checkpointing sync.Mutex // one round at a time
}

type metrics struct {
	events *prometheus.CounterVec
	lag    *prometheus.GaugeVec
	trees  prometheus.Counter
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	key, err := keyfile.Load(cfg.SigningKeyFile)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, key: key}
	s.metrics = metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "execwarden_ledger_events_total", Help: "Events recorded, by stream."}, []string{"stream"}),
		lag:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "execwarden_ledger_lag_seconds", Help: "Age of the newest recorded event when it was recorded, by stream."}, []string{"stream"}),
		trees:  prometheus.NewCounter(prometheus.CounterOpts{Name: "execwarden_ledger_checkpoints_total", Help: "Checkpoints signed."}),
	}
	for _, c := range []prometheus.Collector{s.metrics.events, s.metrics.lag, s.metrics.trees} {
		if err := deps.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run works until ctx ends. It waits for its database as long as that takes.
func (s *Service) Run(ctx context.Context) error {
	url, err := s.databaseURL()
	if err != nil {
		return err
	}
	pool, err := s.open(ctx, url)
	if err != nil || pool == nil {
		return err
	}
	defer pool.Close()
	s.store = store.New(pool)
	s.deps.Health.Check("ledger database", pool.Ping)
	questions, err := s.answer()
	if err != nil {
		return err
	}
	defer questions.Close()
	group, ctx := errgroup.WithContext(ctx)
	for _, stream := range streams {
		group.Go(func() error { return s.follow(ctx, stream) })
	}
	group.Go(func() error { s.checkpointGrown(ctx); return nil })
	return group.Wait()
}

// open connects and migrates, again and again until the database is there. It gives nil when ctx ended first.
func (s *Service) open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	for {
		pool, err := postgres.Pool(ctx, url)
		if err == nil {
			if err = store.Migrate(ctx, pool); err == nil {
				return pool, nil
			}
			pool.Close()
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if problem.CodeOf(err) == problem.Invalid {
			return nil, err
		}
		s.log.Warn("the ledger's database is not there yet", "err", err)
		if !pause(ctx, time.Second) {
			return nil, nil
		}
	}
}

func (s *Service) databaseURL() (string, error) {
	if s.cfg.PostgresURLFile == "" {
		return s.cfg.PostgresURL, nil
	}
	text, err := os.ReadFile(s.cfg.PostgresURLFile)
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "postgres_url_file %s cannot be read", s.cfg.PostgresURLFile)
	}
	return strings.TrimSpace(string(text)), nil
}

// pause waits, and says false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

var _ boot.Service = (*Service)(nil)
