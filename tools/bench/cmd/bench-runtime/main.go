// Bench-runtime measures the runtime's script workers beside node's vm module and isolated-vm, in one run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/tools/bench/scripts"
)

func main() {
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-runtime:", err)
	}
	os.Exit(problem.ExitCode(err))
}

func run() error {
	cfg := scripts.Default()
	output := flag.String("o", "table", "table or json")
	flag.StringVar(&cfg.Worker, "worker", "", "the jsworker program")
	flag.IntVar(&cfg.Scripts, "scripts", cfg.Scripts, "how many scripts of each kind are timed")
	flag.DurationVar(&cfg.Round, "round", cfg.Round, "how long each rate is measured")
	flag.BoolVar(&cfg.Node, "node", cfg.Node, "also measure what needs node; npm installs isolated-vm in a directory that is removed")
	flag.Parse()
	if flag.NArg() > 0 || *output != "table" && *output != "json" {
		return problem.New(problem.Invalid, "bench-runtime takes flags only, and -o is table or json; -help lists them")
	}
	log, err := boot.NewLogger(os.Stderr, "text", "error")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := scripts.Run(ctx, cfg, log)
	if err != nil {
		return err
	}
	if *output == "json" {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	return report.WriteTable(os.Stdout)
}
