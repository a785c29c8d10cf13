package approvals

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/services/approvals/internal/book"
)

// Config is the service's own settings.
type Config struct {
	ApprovalLife time.Duration `name:"approval_life" default:"24h" help:"how long a held call waits for a member"`
}

func (c Config) validate() error {
	if c.ApprovalLife < time.Second || c.ApprovalLife > 14*24*time.Hour {
		return problem.New(problem.Invalid, "approval_life %s is outside [1s, 336h]", c.ApprovalLife)
	}
	return nil
}

// sweepEvery is how often the service looks for what is due. Expiry and escalation are decided at use; the sweep only says
// them, also those whose time came while no instance ran.
const sweepEvery = time.Second

// Service is the approval service.
type Service struct {
	cfg  Config
	deps boot.Deps
	log  *slog.Logger
	now  func() time.Time
	book *book.Book
	view *eventlog.View

	// Members as the control stream has them.
	added   eventlog.Latest[member.Added]
	removed eventlog.Latest[member.Removed]

	reading sync.Mutex
	read    uint64 // EW_ACTIVITY sequence up to which the book is written
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, now: time.Now, book: book.New()}
	s.view = deps.View(func(e eventlog.Stored) { s.added.Apply(e); s.removed.Apply(e) }, member.Added{}.Kind(), member.Removed{}.Kind())
	err := deps.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "execwarden_approvals_waiting", Help: "Approvals that wait for a member.",
	}, func() float64 { return float64(s.book.Open()) }))
	return s, err
}

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	questions, err := s.answer()
	if err != nil {
		return err
	}
	defer questions.Close()
	router, err := s.deps.Router()
	if err != nil {
		return err
	}
	router.Hear("approvals_held", s.onHeld)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	group.Go(func() error { s.sweep(ctx); return nil })
	return group.Wait()
}

func (s *Service) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := s.sayDue(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("sweep", "err", err)
		}
	}
}

var _ boot.Service = (*Service)(nil)
