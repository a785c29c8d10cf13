package callpath

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/keyfile"
	"github.com/execwarden/execwarden/libs/natsd"
	"github.com/execwarden/execwarden/libs/vault"
	"github.com/execwarden/execwarden/schemas"
	"github.com/execwarden/execwarden/services/environments"
	"github.com/execwarden/execwarden/services/gateway"
	"github.com/execwarden/execwarden/services/toolbroker"
)

const (
	layoutBytes = 2 << 30
	readyWait   = 20 * time.Second
)

// house is a NATS server with the services that a call meets, and a provider.
type house struct {
	setting  Setting
	log      *slog.Logger
	server   *natsd.Server
	provider *provider
	health   *boot.Health
	metrics  *prometheus.Registry
	master   vault.Master
	root     ed25519.PublicKey
	faces    bool             // with what people and agents outside reach it by
	gateway  *gateway.Service // nil without
	token    string           // the owner's, with

	running *errgroup.Group
	stop    context.CancelFunc
	conns   []*bus.Conn
}

// newHouse starts a house in a directory. close ends it, also one that did not start whole.
func newHouse(ctx context.Context, dir string, setting Setting, log *slog.Logger, faces bool, provider *provider) (*house, error) {
	h := &house{setting: setting, log: log, faces: faces, provider: provider, health: boot.NewHealth(), metrics: prometheus.NewRegistry()}
	ctx, h.stop = context.WithCancel(ctx)
	h.running, ctx = errgroup.WithContext(ctx)
	if err := h.start(ctx, dir); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *house) start(ctx context.Context, dir string) error {
	cfg := natsd.Config{StoreDir: filepath.Join(dir, "nats")}
	if h.setting.Sync == Interval {
		cfg.SyncInterval = interval
	}
	if h.setting.Transport == TCP {
		cfg.Listen = "127.0.0.1:0"
	}
	rootFile := filepath.Join(dir, "root.key")
	root, err := keyfile.Load(rootFile)
	if err != nil {
		return err
	}
	h.root = root.Public().(ed25519.PublicKey)
	if h.master, err = vault.LoadMaster(filepath.Join(dir, "master.key")); err != nil {
		return err
	}
	if err := h.provider.Start(ctx); err != nil {
		return err
	}
	if h.server, err = natsd.Start(cfg, h.log); err != nil {
		return err
	}
	boss, err := h.connect(ctx, bus.BootUser)
	if err != nil {
		return err
	}
	if err := bus.Provision(ctx, boss, bus.Layout{MaxBytes: layoutBytes}); err != nil {
		return err
	}
	h.running.Go(func() error { return bus.ServeViews(ctx, boss, h.log) })
	h.running.Go(func() error { return overhear(ctx, boss, string(schemas.Activity)) })

	var brokerCfg toolbroker.Config
	if err := boot.Defaults(&brokerCfg); err != nil {
		return err
	}
	brokerCfg.RootSigningKeyFile = rootFile
	err = h.run(ctx, schemas.Toolbroker, func(d boot.Deps) (boot.Service, error) { return toolbroker.New(brokerCfg, d) })
	if err != nil {
		return err
	}
	var machines environments.Config
	if err := boot.Defaults(&machines); err != nil {
		return err
	}
	machines.CalloutSeed = vault.NewSecret(h.server.CalloutSeed())
	err = h.run(ctx, schemas.Environments, func(d boot.Deps) (boot.Service, error) { return environments.New(machines, d) })
	if err != nil {
		return err
	}
	if h.faces {
		if err := h.startFaces(ctx, filepath.Join(dir, "owner.token")); err != nil {
			return err
		}
	}
	return until(ctx, "the services are ready", func() bool { return len(h.health.Failing(ctx)) == 0 })
}

func (h *house) run(ctx context.Context, name schemas.Service, start func(boot.Deps) (boot.Service, error)) error {
	conn, err := h.connect(ctx, string(name))
	if err != nil {
		return err
	}
	s, err := start(boot.Deps{
		Service: name, Version: boot.Version(), Conn: conn, Log: eventlog.New(conn), Logger: h.log, Health: h.health,
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"service": string(name)}, h.metrics), Master: h.master, Root: h.root,
	})
	if err != nil {
		return err
	}
	h.running.Go(func() error {
		if err := s.Run(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	return nil
}

// connect gives a connection that lives as long as the house.
func (h *house) connect(ctx context.Context, user string) (*bus.Conn, error) {
	cfg := h.server.Client(user, "bench")
	if h.setting.Transport == TCP {
		cfg.InProcess, cfg.URL = nil, h.server.URL()
	}
	c, err := bus.Connect(ctx, cfg, h.log)
	if err == nil {
		h.conns = append(h.conns, c)
	}
	return c, err
}

func (h *house) close() error {
	h.stop()
	err := h.running.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil // that is how a house ends
	}
	for _, c := range slices.Backward(h.conns) {
		c.Close()
	}
	if h.server != nil {
		h.server.Halt()
	}
	if h.provider.URL() != "" {
		err = errors.Join(err, h.provider.Close())
	}
	return err
}

// until waits for something that takes no more than moments.
func until(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it never came that %s: %w", what, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
