package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/natsd"
	"github.com/execwarden/execwarden/libs/postgres"
	"github.com/execwarden/execwarden/schemas"
)

// Run runs everything until ctx ends, and returns when it has ended. notices are for people.
func Run(ctx context.Context, cfg Config, notices io.Writer) (err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return err
	}
	log, err := boot.NewLogger(notices, cfg.LogFormat, cfg.LogLevel)
	if err != nil {
		return err
	}
	boot.RoomyHeap()
	endTraces, err := boot.StartTraces(ctx, "execwarden", boot.Version())
	if err != nil {
		return err
	}
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, endTraces(flush))
	}()
	dir, err := openDataDir(cfg.DataDir, cfg.MasterKey)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	if cfg.SyncInterval > 0 {
		log.Warn("NOT POWER-LOSS SAFE: events are acknowledged before they are fsynced", "sync_interval", cfg.SyncInterval)
	}
	server, err := natsd.Start(natsd.Config{StoreDir: dir.file("nats"), SyncInterval: cfg.SyncInterval, Listen: cfg.NATSListen}, log.With("service", "nats"))
	if err != nil {
		return err
	}
	defer server.Halt()
	provisioner, err := startProvisioner(ctx, server, log)
	if err != nil {
		return err
	}
	defer provisioner.close()
	database, err := startDatabase(ctx, cfg, dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.close(log)) }()

	if cfg.started != nil {
		cfg.started(server, database.server)
	}
	p := &process{cfg: cfg, dir: dir, log: log, server: server, database: database,
		registry: prometheus.NewRegistry(), health: boot.NewHealth(), notices: notices}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return p.run(ctx)
}

// process is the eight services of one process.
type process struct {
	cfg      Config
	dir      *dataDir
	log      *slog.Logger
	server   *natsd.Server
	database *database
	registry *prometheus.Registry
	health   *boot.Health
	notices  io.Writer
}

func (p *process) run(ctx context.Context) error {
	ops, err := boot.Listen("ops_listen", p.cfg.OpsListen)
	if err != nil {
		return err
	}
	defer ops.Close() // also after serving, which has closed it then
	all, addresses, err := p.services(ctx)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range all {
			s.conn.Close()
		}
	}()
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range all {
		group.Go(func() error {
			if err := s.Run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			return nil
		})
	}
	group.Go(func() error { return boot.Serve(ctx, ops, boot.OpsHandler(p.registry, p.health), p.log) })
	group.Go(func() error { return p.announceWhenReady(ctx, addresses, ops.Addr()) })
	defer p.dir.retract()
	return group.Wait()
}

// announceWhenReady waits until everything works and tells where it is reached.
func (p *process) announceWhenReady(ctx context.Context, addresses func(context.Context) (Endpoints, error), ops net.Addr) error {
	e, err := addresses(ctx)
	if err != nil {
		return nil // the process is ending
	}
	began, told := time.Now(), false
	for {
		failing := p.health.Failing(ctx)
		if len(failing) == 0 {
			break
		}
		if !told && time.Since(began) > 5*time.Second {
			p.log.Warn("not ready yet", "waiting_for", failing)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
	e.Ops, e.NATS = "http://"+ops.String(), p.server.URL()
	if err := p.dir.announce(e); err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	fmt.Fprintf(p.notices, "execwarden is up\n  API and console  %s\n  webhooks         %s/hooks/tnt_main/<hook>\n  ops              %s\n  data             %s\n  owner's token    %s\n",
		e.API, e.Hooks, e.Ops, p.dir.path, p.dir.file(ownerTokenFile))
	return nil
}

func (p *process) deps(ctx context.Context, s schemas.Service) (boot.Deps, error) {
	log := p.log.With("service", string(s))
	conn, err := bus.Connect(ctx, p.server.Client(string(s), "0"), log)
	if err != nil {
		return boot.Deps{}, err
	}
	p.health.Expect(string(s))
	return boot.Deps{
		Service: s, Version: boot.Version(), Conn: conn, Log: eventlog.New(conn), Logger: log, Health: p.health,
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"service": string(s)}, p.registry),
		Master:  p.dir.master, Root: p.dir.public(),
	}, nil
}

// provisioner is the boot user: it made the streams, and makes views anew for services that ask.
type provisioner struct {
	conn    *bus.Conn
	stop    context.CancelFunc
	serving sync.WaitGroup
}

func startProvisioner(ctx context.Context, server *natsd.Server, log *slog.Logger) (*provisioner, error) {
	log = log.With("service", bus.Provisioner)
	conn, err := bus.Connect(ctx, server.Client(bus.BootUser, "0"), log)
	if err != nil {
		return nil, err
	}
	if err := bus.Provision(ctx, conn, bus.Layout{}); err != nil {
		conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the services, which may still ask
	p := &provisioner{conn: conn, stop: cancel}
	p.serving.Go(func() {
		if err := bus.ServeViews(ctx, conn, log); err != nil {
			log.Error("rewinds", "err", err)
		}
	})
	return p, nil
}

func (p *provisioner) close() {
	p.stop()
	p.serving.Wait()
	p.conn.Close()
}

// database is the ledger's database, private or somebody else's.
type database struct {
	url    string
	server *postgres.Server
}

func startDatabase(ctx context.Context, cfg Config, dir *dataDir, log *slog.Logger) (*database, error) {
	server, err := postgres.Start(ctx, postgres.Config{URL: cfg.PostgresURL, DataDir: dir.file("postgres")}, log.With("service", "postgres"))
	if err != nil {
		return nil, err
	}
	return &database{url: server.URL(), server: server}, nil
}

func (d *database) close(log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := d.server.Stop(ctx); err != nil {
		log.Error("postgres did not stop cleanly; it recovers at the next start", "err", err)
		return err
	}
	return nil
}
