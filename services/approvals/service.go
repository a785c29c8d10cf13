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
	"github.com/execwarden/execwarden/libs/standing"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas/member"
	"github.com/execwarden/execwarden/schemas/target"
	"github.com/execwarden/execwarden/schemas/tenant"
	"github.com/execwarden/execwarden/services/approvals/internal/backlog"
	"github.com/execwarden/execwarden/services/approvals/internal/book"
	"github.com/execwarden/execwarden/services/approvals/internal/courier"
)

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

	grounds standing.Set
	ended   chan struct{} // something that calls rest on is no more

	reading sync.Mutex
	read    uint64 // EW_ACTIVITY sequence up to which the book is written

	targets eventlog.Latest[target.Defined]
	tenants eventlog.Latest[tenant.Created]
	backlog *backlog.Backlog
	noted   uint64 // EW_ACTIVITY sequence up to which the backlog is written; tell's alone
	courier *courier.Courier
	vault   *vault.Vault  // set by Run, before anything is heard
	kick    chan struct{} // there may be a notice to send
	told    *prometheus.CounterVec
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	server, err := cfg.server()
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, now: time.Now, book: book.New(), backlog: backlog.New(), courier: courier.New(server), kick: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
	s.view = deps.View(s.apply, append(standing.Kinds(), member.Added{}.Kind(), member.Removed{}.Kind(), target.Defined{}.Kind(), tenant.Created{}.Kind())...)
	s.told = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "execwarden_notices_total", Help: "Attempts to tell approvers, by type of target and outcome: sent, retried, failed (given up)."}, []string{"type", "outcome"})
	for _, c := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "execwarden_approvals_waiting", Help: "Approvals that wait for a member.",
		}, func() float64 { return float64(s.book.Open()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "execwarden_notices_waiting", Help: "Notices to approvers that are not sent yet.",
		}, func() float64 { return float64(s.backlog.Len()) }),
		s.told,
	} {
		if err := deps.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Service) apply(e eventlog.Stored) {
	s.added.Apply(e)
	s.removed.Apply(e)
	s.targets.Apply(e)
	s.tenants.Apply(e)
	if _, ended := s.grounds.Apply(e); ended {
		select {
		case s.ended <- struct{}{}:
		default: // the sweep is asked for already
		}
	}
}

// Run works until ctx ends.
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
	router.Hear("approvals_held", s.onHeld)
	router.Hear("approvals_notice", s.onNotice)
	router.Hear("approvals_cancelled", s.onCancelled)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	group.Go(func() error { s.sweep(ctx); return nil })
	group.Go(func() error { s.tell(ctx); return nil })
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
		case <-s.ended:
		}
		if err := s.sayDue(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("sweep", "err", err)
		}
	}
}

var _ boot.Service = (*Service)(nil)
