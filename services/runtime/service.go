package runtime

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/barrier"
	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/egress"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/libs/hints"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/libs/rpc"
	"github.com/execwarden/execwarden/schemas/agent"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/services/runtime/internal/sandbox"
)

// Config is the runtime's own settings.
type Config struct {
	WorkerPath     string        `name:"worker_path" help:"the jsworker program"`
	WorkerDigest   string        `name:"worker_digest" help:"SHA-256 of the jsworker program in hex; empty: not checked"`
	AllowWeak      bool          `name:"allow_weak_sandbox" default:"false" help:"run scripts even where workers cannot be isolated; for development only"`
	WorkerIdle     time.Duration `name:"worker_idle" default:"30s" help:"how long a script worker is kept for the next script of its run; below 0: every script has a worker of its own"`
	Scripts        int           `name:"scripts" default:"0" help:"how many scripts run at once, of one tenant at most half of them; 0: 4 for each processor"`
	ScriptPatience time.Duration `name:"script_patience" default:"10s" help:"how long a script waits for a place and a worker before its call fails as busy"`
	FetchDeny      string        `name:"fetch_deny" help:"what no script may fetch whatever its agent's rule says, such as this deployment's own API: hosts, addresses and ranges, separated by commas"`
	ArtifactBytes  int           `name:"artifact_bytes" default:"1048576" help:"size of one artifact of a session, at most 4 MiB"`
	ArtifactsBytes int           `name:"artifacts_bytes" default:"16777216" help:"size of all artifacts of a session together"`
	Artifacts      int           `name:"artifacts" default:"100" help:"how many artifacts a session keeps"`
	CallLife       time.Duration `name:"call_life" default:"1m" help:"how old a script's tool call may be when the broker first sees it"`
}

// withDefaults fills the sizes of artifacts, for who makes a Config without boot.
func (c Config) withDefaults() Config {
	c.ArtifactBytes, c.ArtifactsBytes, c.Artifacts = cmp.Or(c.ArtifactBytes, 1<<20), cmp.Or(c.ArtifactsBytes, 16<<20), cmp.Or(c.Artifacts, 100)
	return c
}

func (c Config) validate() error {
	switch {
	case c.WorkerPath == "":
		return problem.New(problem.Invalid, "worker_path is required")
	case c.CallLife < time.Second || c.CallLife > time.Hour:
		return problem.New(problem.Invalid, "call_life %s is outside [1s, 1h]", c.CallLife)
	case c.Scripts < 0 || c.ScriptPatience < 0:
		return problem.New(problem.Invalid, "scripts %d or script_patience %s is below 0", c.Scripts, c.ScriptPatience)
	case c.ArtifactBytes < 1 || c.ArtifactBytes > 4<<20 || c.ArtifactsBytes < 1 || c.Artifacts < 1:
		return problem.New(problem.Invalid, "artifact_bytes %d is outside [1, 4 MiB], or artifacts_bytes %d or artifacts %d is below 1", c.ArtifactBytes, c.ArtifactsBytes, c.Artifacts)
	}
	if _, err := egress.New(egress.Rule{Hosts: []string{"*"}, Deny: c.denied()}); err != nil {
		return problem.Wrap(err, problem.Invalid, "fetch_deny: %s", problem.DetailOf(err).Message)
	}
	return nil
}

// denied lists what is in FetchDeny.
func (c Config) denied() []string {
	return strings.FieldsFunc(c.FetchDeny, func(r rune) bool { return r == ',' || r == ' ' })
}

// Service is the lightweight runtime.
type Service struct {
	cfg     Config
	deps    boot.Deps
	log     *slog.Logger
	view    *eventlog.View
	gate    *executor.Gate
	hints   *hints.Ear
	agents  eventlog.Latest[agent.Defined]
	metrics *metrics
	pool    *sandbox.Pool // set by Run, before anything is heard
}

// New makes the service.
func New(cfg Config, deps boot.Deps) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, log: deps.Logger, hints: hints.New(deps.Conn)}
	s.gate = executor.New(call.Script, deps.Conn, deps.Log, deps.Root)
	s.view = deps.View(s.apply, executor.Kinds()...)
	s.gate.Follow(s.view)
	var err error
	s.metrics, err = newMetrics(deps.Metrics)
	return s, err
}

// Run works until ctx ends and every worker has.
func (s *Service) Run(ctx context.Context) (err error) {
	if err = s.gate.OpenClaims(ctx); err != nil {
		return err
	}
	if s.pool, err = sandbox.New(ctx, sandbox.Config{WorkerPath: s.cfg.WorkerPath, WorkerDigest: s.cfg.WorkerDigest, AllowWeak: s.cfg.AllowWeak, Idle: s.cfg.WorkerIdle,
		Running: s.cfg.Scripts, Patience: s.cfg.ScriptPatience, Limits: sandbox.Limits{Artifact: s.cfg.ArtifactBytes}}, s.log); err != nil {
		return err
	}
	defer s.pool.Close()
	if err = s.metrics.watch(s.deps.Metrics, s.pool); err != nil {
		return err
	}
	s.deps.Health.Tell("script isolation", string(s.pool.Tier()))
	if s.pool.Tier() == sandbox.TierWeak {
		s.log.Error("SCRIPTS ARE NOT ISOLATED: allow_weak_sandbox is set; never run other people's agents like this", "isolation", s.pool.Isolation())
	} else {
		s.log.Info("scripts are isolated", "tier", s.pool.Tier())
	}
	stop, err := s.hints.Listen()
	if err != nil {
		return err
	}
	defer stop()
	router, err := s.deps.Router()
	if err != nil {
		return err
	}
	router.Hear("runtime_admitted", s.onAdmitted)
	questions, err := s.deps.Answer(
		rpc.On("artifacts_list", s.listArtifacts),
		rpc.On("artifact_get", s.getArtifact),
		barrier.Answer(s.view),
	)
	if err != nil {
		return err
	}
	defer questions.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.gate.HearCancellations(ctx) })
	group.Go(func() error { return s.hearEnds(ctx) })
	group.Go(func() error { return s.view.Run(ctx) })
	group.Go(func() error { return router.Run(ctx) })
	return group.Wait()
}

func (s *Service) apply(e eventlog.Stored) {
	if err := s.gate.Apply(e); err != nil {
		s.log.Error("key not trusted", "seq", e.Seq, "err", err)
	}
	s.agents.Apply(e)
}

var _ boot.Service = (*Service)(nil)
