package cluster

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/boot"
)

// Command is `execwarden cluster`.
func Command() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "What a deployment of separate services needs beside them"}
	cmd.AddCommand(initCommand(), provisionCommand())
	return cmd
}

func initCommand() *cobra.Command {
	var database string
	cmd := &cobra.Command{
		Use:   "init DIRECTORY",
		Short: "Make the secrets of a deployment",
		Long: `Make the secrets of a deployment: its keys, a NATS password per service, the owner's token, and the
database's password. What is there already is kept.

Examples:
  execwarden cluster init .secrets

Exit codes: 0 ok, 1 failed, 2 usage.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return Init(args[0], database, cmd.ErrOrStderr()) },
	}
	cmd.Flags().StringVar(&database, "database", "postgres:5432", "host and port of the ledger's PostgreSQL server")
	return cmd
}

func provisionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "provision [flags]",
		Short: "Make the streams and durables, as the one user that may",
		Long: `Make or update the streams and durables on a NATS server, and then stay to answer services that start
their views anew. It connects as user boot, whose password only it needs.

Settings come from flags, the environment, or a YAML file (--config); --help lists them.

Examples:
  execwarden cluster provision --bus-url nats://nats:4222 --bus-password-file .secrets/bus-boot

Exit codes: 0 ended on a signal, 1 failed, 2 usage.`,
		DisableFlagParsing: true, // settings are read by the one loader that every service uses
		RunE: func(cmd *cobra.Command, args []string) error {
			var cfg Config
			err := boot.Load("execwarden cluster provision", args, os.Getenv, &cfg, cmd.OutOrStdout())
			if errors.Is(err, flag.ErrHelp) {
				return nil
			}
			if err != nil {
				return err
			}
			log, err := boot.NewLogger(cmd.ErrOrStderr(), "json", "info")
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return Provision(ctx, cfg, log.With("service", "provisioner"))
		},
	}
}
