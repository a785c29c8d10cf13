package cluster

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/bus"
	"github.com/execwarden/execwarden/libs/keyfile"
)

// Config is the provisioner's settings.
type Config struct {
	BusURL          string `name:"bus_url" default:"nats://127.0.0.1:4222" help:"NATS server"`
	BusPasswordFile string `name:"bus_password_file" help:"file with the password of user boot"`
	OpsListen       string `name:"ops_listen" default:"127.0.0.1:9464" help:"address of /metrics, /healthz and /readyz"`
	Replicas        int    `name:"replicas" default:"1" help:"replicas of each stream"`
	RootKeyFile     string `name:"root_key_file" help:"not used; accepted so that all services can share one environment"`
}

// Provision makes the streams and durables, and then answers services that start their views anew, until ctx ends.
func Provision(ctx context.Context, cfg Config, log *slog.Logger) error {
	password, err := keyfile.Read(cfg.BusPasswordFile)
	if err != nil {
		return err
	}
	conn, err := bus.Connect(ctx, bus.Config{URL: cfg.BusURL, User: bus.BootUser, Password: password, Instance: "0"}, log)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := bus.Provision(ctx, conn, bus.Layout{Replicas: cfg.Replicas}); err != nil {
		return err
	}
	ops, err := boot.Listen("ops_listen", cfg.OpsListen)
	if err != nil {
		return err
	}
	log.Info("streams and durables are there")
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return bus.ServeViews(ctx, conn, log) })
	group.Go(func() error {
		return boot.Serve(ctx, ops, boot.OpsHandler(prometheus.NewRegistry(), boot.NewHealth()), log)
	})
	return group.Wait()
}
