// Command conformance holds the MCP endpoint against the official suite and clients; see package conformance. Exit codes: 0 all
// that is required holds, 1 it does not, 2 usage.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/execwarden/execwarden/tools/conformance"
)

func main() {
	cfg := conformance.Default()
	flag.StringVar(&cfg.Program, "execwarden", cfg.Program, "the execwarden program")
	flag.StringVar(&cfg.Everything, "everything", cfg.Everything, "the reference server of the Go SDK")
	flag.StringVar(&cfg.Cache, "cache", cfg.Cache, "directory for what npm installs")
	flag.DurationVar(&cfg.Sync, "sync-interval", cfg.Sync, "of execwarden up; 0 waits for the disk at each acknowledgement")
	legs := flag.String("legs", strings.Join(cfg.Legs, ","), "the suite's legs that are run; empty: none")
	flag.BoolVar(&cfg.Clients, "clients", cfg.Clients, "run the Inspector and the TypeScript clients")
	flag.StringVar(&cfg.Keep, "keep", "", "directory to keep the suite's results in")
	relay := flag.String("relay", "", "be a client of the suite: hand its scenario to the house at this address; then the server's URL is the argument")
	flag.Parse()
	if *relay != "" {
		if err := conformance.Relay(context.Background(), *relay, flag.Arg(0), os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	cfg.Legs = strings.FieldsFunc(*legs, func(r rune) bool { return r == ',' })
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "conformance: %q is not a flag\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := conformance.Run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "\nconformance: it does not hold:", err)
		os.Exit(1)
	}
}
