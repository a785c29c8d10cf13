package toolbroker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/calls"
	"github.com/execwarden/execwarden/libs/condition"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/permit"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/schemas/connection"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/grant"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/toolbroker/internal/control"
	"github.com/execwarden/execwarden/services/toolbroker/internal/counter"
	"github.com/execwarden/execwarden/services/toolbroker/internal/oauth"
	"github.com/execwarden/execwarden/services/toolbroker/internal/stdio"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// Config is the broker's own settings.
type Config struct {
	RootSigningKeyFile string        `name:"root_signing_key_file" help:"file with the deployment's private root key (Ed25519 seed, base64), mode 0600; it signs the permit key"`
	CallTimeout        time.Duration `name:"call_timeout" default:"60s" help:"longest that one call to a provider may take"`
	StdioFile          string        `name:"stdio_file" help:"YAML file with the programs that connections of URL stdio:NAME run beside the broker; default: none, which refuses such connections"`
	MaxInFlight        int           `name:"max_in_flight" default:"64" help:"calls of one connection that one broker makes at once; more wait up to 2s for a place and are busy then"`
	BreakerFailures    int           `name:"breaker_failures" default:"5" help:"how many requests in a row a connection may leave without an answer before it gets none for a while"`
	BreakerRest        time.Duration `name:"breaker_rest" default:"15s" help:"that while; then one request tries"`
	RelistEvery        time.Duration `name:"relist_every" default:"5m" help:"how often connections are asked again what tools they have"`
	GitMaxBytes        int           `name:"git_max_bytes" default:"1073741824" help:"most bytes of one git clone, fetch or push of a machine that go through the broker"`
	GitIdle            time.Duration `name:"git_idle" default:"2m" help:"how long a git request of a machine may carry nothing before it is ended"`
	PermitLife         time.Duration `name:"permit_life" default:"5m" help:"how long an admission may wait for its executor, at most 15m"`
}

func (c Config) validate() error {
	switch {
	case c.RootSigningKeyFile == "":
		return problem.New(problem.Invalid, "root_signing_key_file is required")
	case c.CallTimeout <= 0 || c.CallTimeout > 10*time.Minute:
		return problem.New(problem.Invalid, "call_timeout %s is outside (0, 10m]", c.CallTimeout)
	case c.MaxInFlight < 1 || c.MaxInFlight > 10_000:
		return problem.New(problem.Invalid, "max_in_flight %d is outside [1, 10000]", c.MaxInFlight)
	case c.BreakerFailures < 1 || c.BreakerRest <= 0 || c.BreakerRest > time.Hour:
		return problem.New(problem.Invalid, "breaker_failures %d is below 1, or breaker_rest %s is outside (0, 1h]", c.BreakerFailures, c.BreakerRest)
	case c.RelistEvery < time.Second:
		return problem.New(problem.Invalid, "relist_every %s is under 1s", c.RelistEvery)
	case c.GitMaxBytes < 1<<20 || c.GitIdle < time.Second || c.GitIdle > time.Hour:
		return problem.New(problem.Invalid, "git_max_bytes %d is below 1 MiB, or git_idle %s outside [1s, 1h]", c.GitMaxBytes, c.GitIdle)
	case c.PermitLife <= 0 || c.PermitLife > permit.MaxLife:
		return problem.New(problem.Invalid, "permit_life %s is outside (0, %s]", c.PermitLife, permit.MaxLife)
	}
	return nil
}

// Service is the tool broker.
type Service struct {
	cfg  Config
	deps boot.Deps
	log  *slog.Logger
	now  func() time.Time

	state      *control.State
	volumes    eventlog.Latest[volume.Defined]
	machines   eventlog.Latest[connector.Welcomed]
	view       *eventlog.View
	gate       *executor.Gate
	providers  *providers
	lists      *lists
	watching   *watching
	conditions condition.Cache
	metrics    metrics

	indexing sync.Mutex
	indexes  map[connectionKey]indexed // of connections whose tools somebody searched

	declaring    sync.Mutex
	declarations map[connectionKey]declared // of connections whose tools some script may call

	// Set by Run, before anything is heard.
	vault    *vault.Vault
	oauth    *oauth.Client
	logins   chan struct{} // a word when agents' logins are to be looked at
	signer   *permit.Signer
	counters *counter.Counters
}

type metrics struct {
	decisions *prometheus.CounterVec
	upstream  *prometheus.HistogramVec
	renewals  *prometheus.CounterVec
	breakers  *prometheus.GaugeVec
	git       *prometheus.CounterVec
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	programs, err := stdio.Load(cfg.StdioFile)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, now: time.Now, indexes: map[connectionKey]indexed{}, declarations: map[connectionKey]declared{}}
	s.state = control.New()
	s.lists, s.logins = newLists(), make(chan struct{}, 1)
	s.gate = executor.New(call.Upstream, deps.Conn, deps.Log, deps.Root)
	s.view = deps.View(s.apply)
	s.gate.Follow(s.view)
	s.metrics = metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "execwarden_call_decisions_total", Help: "Decisions on calls, by verdict."}, []string{"verdict"}),
		upstream: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "execwarden_upstream_call_seconds", Help: "Time of calls to providers, by connection type and outcome.",
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 9)}, []string{"type", "outcome"}),
		breakers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "execwarden_connection_breaker_state", Help: "What the breaker of each connection does: 0 closed (calls go through), 1 half open (one tries), 2 open (nothing is sent)."}, []string{"tenant", "connection"}),
		git: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "execwarden_git_lent_bytes_total", Help: "Bytes of machines' git requests that went through with a connection's credential, by direction."}, []string{"direction"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "execwarden_token_renewals_total", Help: "Renewals of connections' OAuth tokens, by outcome: renewed, refused (somebody has to log in), failed (tried again at the next call)."}, []string{"outcome"}),
	}
	s.providers = newProviders(s.credential, s.state.Connection, s.state.Package, s.guard, s.lists.soon, programs, s.log)
	s.watching = newWatching(s.providers.unwatch)
	s.providers.updated = s.watching.came
	for _, c := range []prometheus.Collector{s.metrics.decisions, s.metrics.upstream, s.metrics.renewals, s.metrics.breakers, s.metrics.git} {
		if err := deps.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run works until ctx ends and every call in flight has its outcome or has been handed back.
func (s *Service) Run(ctx context.Context) (err error) {
	if s.vault, err = vault.Open(ctx, s.deps.Conn, s.deps.Master); err != nil {
		return err
	}
	s.oauth = oauth.New(s.vault, s.sayLogin, func(outcome string) { s.metrics.renewals.WithLabelValues(outcome).Inc() }, s.log)
	defer s.oauth.Close()
	s.providers.oauth = s.oauth
	if s.counters, err = counter.Open(ctx, s.deps.Conn, s.ended); err != nil {
		return err
	}
	if err = s.gate.OpenClaims(ctx); err != nil {
		return err
	}
	if err = s.publishKey(ctx); err != nil {
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
	router.Undecodable = s.onUndecodable
	router.Hear("toolbroker_requested", s.onRequested)
	router.Hear("toolbroker_approval", s.onApproval)
	router.Hear("toolbroker_admitted", s.onAdmitted)
	router.Hear("toolbroker_connection", s.onConnection)
	defer s.providers.close()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.lend(ctx) })
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	group.Go(func() error { s.relist(ctx); return nil })
	group.Go(func() error { s.sayUpdates(ctx); return nil })
	group.Go(func() error { return s.gate.HearCancellations(ctx) })
	return group.Wait()
}

func (s *Service) apply(e eventlog.Stored) {
	if err := s.gate.Apply(e); err != nil {
		s.log.Error("key not trusted", "seq", e.Seq, "err", err)
	}
	s.state.Apply(e)
	s.volumes.Apply(e)
	s.machines.Apply(e)
	if e.At.Noun == "agent" || e.At.Kind() == (connection.Defined{}).Kind() {
		s.doubtLogins()
	}
	if e.At.Noun == "connection" {
		s.forget(e.At.Tenant, id.Connection(e.At.Key))
	}
	if e.At.Kind() == (grant.Revoked{}).Kind() {
		s.providers.renounce(e.At.Tenant) // what somebody who lost a grant could still use
	}
}

// forget lets go of what is open for a connection that was removed. Every instance hears of it.
func (s *Service) forget(tenant id.Tenant, c id.Connection) {
	if _, ok := s.state.Connection(tenant, id.Name(c)); !ok {
		s.providers.drop(tenant, c)
		s.indexing.Lock()
		delete(s.indexes, connectionKey{tenant, c})
		s.indexing.Unlock()
		s.declaring.Lock()
		delete(s.declarations, connectionKey{tenant, c})
		s.declaring.Unlock()
		s.metrics.breakers.DeleteLabelValues(string(tenant), string(c))
	}
}

// placeWait is how long a call waits for a place in its connection.
const placeWait = 2 * time.Second

// guard puts limits and a breaker before a provider.
func (s *Service) guard(key connectionKey, p upstream.Provider) upstream.Provider {
	return upstream.NewGuard(p, id.Name(key.connection), upstream.Limits{
		InFlight: s.cfg.MaxInFlight, Wait: placeWait, Failures: s.cfg.BreakerFailures, Rest: s.cfg.BreakerRest,
	}, s.metrics.breakers.WithLabelValues(string(key.tenant), string(key.connection)), s.log.With("tenant", key.tenant))
}

// ended says whether a call has its outcome. One that is older than what the stream keeps has, and would be waited for
// for ever: no call is open for so long.
func (s *Service) ended(ctx context.Context, c counter.Call) (bool, error) {
	state, err := calls.Read(ctx, s.deps.Log, c.Tenant, c.Run, c.Call, c.Seq)
	if err != nil || state.Requested != nil {
		return err == nil && state.Outcome != nil, err
	}
	kept, err := s.deps.Log.Messages(ctx, schemas.Activity, 1, 1)
	return err == nil && len(kept) == 1 && kept[0].Seq > c.Seq, err
}

var _ boot.Service = (*Service)(nil)

// actor is who the broker's own events are by.
const actor = "service:" + string(schemas.Toolbroker)
