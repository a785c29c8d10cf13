package boot

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/eventlog"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas"
)

// Program is what every service's program is configured with, beside the service's own settings.
type Program struct {
	BusURL          string `name:"bus_url" default:"nats://127.0.0.1:4222" help:"NATS server"`
	BusPasswordFile string `name:"bus_password_file" help:"file with the password of this service's NATS user"`
	Instance        string `name:"instance" default:"0" help:"names this process among those of the service"`
	OpsListen       string `name:"ops_listen" default:"127.0.0.1:9464" help:"address of /metrics, /healthz and /readyz"`
	LogFormat       string `name:"log_format" default:"json" help:"text or json"`
	LogLevel        string `name:"log_level" default:"info" help:"debug, info, warn or error"`
	RootKeyFile     string `name:"root_key_file" help:"file with the deployment's public root key, base64"`
	MasterKey
}

// Main runs one service as a program and does not return. cfg points to a struct that embeds Program, which program
// points to, and is filled before start is called. Exit codes: 0 ended on a signal, 1 failed, 2 usage.
func Main(service schemas.Service, program *Program, cfg any, start func(Deps) (Service, error)) {
	err := Load(string(service), os.Args[1:], os.Getenv, cfg, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil {
		err = run(service, *program, start)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, service+":", err)
	}
	os.Exit(problem.ExitCode(err))
}

func run(service schemas.Service, p Program, start func(Deps) (Service, error)) error {
	stopping, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx := stopping
	logger, err := NewLogger(os.Stderr, p.LogFormat, p.LogLevel)
	if err != nil {
		return err
	}
	logger = logger.With("service", string(service))
	RoomyHeap()
	endTraces, err := StartTraces(ctx, "execwarden-"+string(service), Version())
	if err != nil {
		return err
	}
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := endTraces(flush); err != nil {
			logger.Warn("traces", "err", err)
		}
	}()
	deps := Deps{Service: service, Version: Version(), Logger: logger, Health: NewHealth()}
	deps.Health.Expect(string(service))
	if deps.Master, err = p.MasterKey.Open(); err != nil {
		return err
	}
	if deps.Root, err = LoadRoot(p.RootKeyFile); err != nil {
		return err
	}
	password, err := readSecret(p.BusPasswordFile)
	if err != nil {
		return err
	}
	deps.Conn, err = bus.Connect(ctx, bus.Config{URL: p.BusURL, User: string(service), Password: password, Instance: p.Instance}, logger)
	if err != nil {
		return err
	}
	defer deps.Conn.Close()
	deps.Log = eventlog.New(deps.Conn)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	deps.Metrics = prometheus.WrapRegistererWith(prometheus.Labels{"service": string(service)}, registry)

	svc, err := start(deps)
	if err != nil {
		return err
	}
	ops, err := Listen("ops_listen", p.OpsListen)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return Serve(ctx, ops, OpsHandler(registry, deps.Health), logger) })
	group.Go(func() error { return svc.Run(ctx) })
	logger.Info("running", "version", deps.Version, "ops", ops.Addr().String())
	err = group.Wait()
	if stopping.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // told to end while something was still starting
	}
	return err
}

// LoadRoot reads the deployment's public root key.
func LoadRoot(path string) (ed25519.PublicKey, error) {
	text, err := readSecret(path)
	if err != nil || text == "" {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, problem.New(problem.Invalid, "%s does not hold an Ed25519 public key in base64", path)
	}
	return key, nil
}

func readSecret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", problem.Wrap(err, problem.Invalid, "%s cannot be read", path)
	}
	return strings.TrimSpace(string(text)), nil
}

// Version is the module's version and revision, as far as the build knows them.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "0.0.0"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "0.0.0+" + s.Value[:12]
		}
	}
	return "0.0.0"
}
