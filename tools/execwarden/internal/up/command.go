package up

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

// Command is `execwarden up`.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "up [flags]",
		Short: "Run all of ExecWarden in this process",
		Long: `Run all of ExecWarden in one process: an embedded NATS server, a private PostgreSQL cluster, and the
eight services. Everything that is kept is in one data directory. It ends on Ctrl-C or SIGTERM, after
what runs has been recorded or handed back.

Settings come from flags, the environment (EXECWARDEN_DATA for --data), or a YAML file (--config).
"execwarden up --help" lists them.

Examples:
  execwarden up
  execwarden up --data ./data --listen 127.0.0.1:9000
  EXECWARDEN_POSTGRES_URL=postgres://ledger@db/ledger execwarden up

Exit codes: 0 ended on a signal, 1 failed, 2 usage.`,
		DisableFlagParsing: true, // settings are read by the one loader that every service uses
		SilenceUsage:       true,
		RunE: func(cmd *cobra.Command, args []string) error {
			var cfg Config
			err := boot.Load("execwarden up", args, os.Getenv, &cfg, cmd.OutOrStdout())
			if errors.Is(err, flag.ErrHelp) {
				return nil
			}
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return Run(ctx, cfg, cmd.ErrOrStderr())
		},
	}
}
