// Bench-path measures what a tool call costs beside the bare appends and hops under it, in one run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"

	"github.com/execwarden/execwarden/libs/boot"
	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/tools/bench/callpath"
)

func main() {
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-path:", err)
	}
	os.Exit(problem.ExitCode(err))
}

func run() (err error) {
	cfg := callpath.Default()
	output := flag.String("o", "table", "table or json")
	profile := flag.String("cpuprofile", "", "file for a CPU profile of the whole run")
	flag.DurationVar(&cfg.Round, "round", cfg.Round, "how long one turn of one way is")
	flag.IntVar(&cfg.Rounds, "rounds", cfg.Rounds, "how many turns each way has")
	flag.IntVar(&cfg.Revokes, "revokes", cfg.Revokes, "how many grants are revoked per setting")
	flag.IntVar(&cfg.InFlight, "in-flight", cfg.InFlight, "calls in flight under each of them")
	flag.Func("callers", "numbers of callers, with commas between (default 1,16)", list(&cfg.Callers, strconv.Atoi))
	flag.Func("transport", "in-process, tcp (default both)", list(&cfg.Transports, named[callpath.Transport]))
	flag.Func("sync", "interval, always (default both)", list(&cfg.Syncs, named[callpath.Sync]))
	flag.Parse()
	if flag.NArg() > 0 || *output != "table" && *output != "json" {
		return problem.New(problem.Invalid, "bench-path takes flags only, and -o is table or json; -help lists them")
	}
	log, err := boot.NewLogger(os.Stderr, "text", "warn")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	endTraces, err := boot.StartTraces(ctx, "bench-path", boot.Version()) // services pay for traces too
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endTraces(context.WithoutCancel(ctx))) }()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	report, err := callpath.Run(ctx, cfg, log)
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

// list reads values with commas between, in place of the default ones.
func list[T any](into *[]T, parse func(string) (T, error)) func(string) error {
	return func(text string) error {
		*into = nil
		for _, part := range strings.Split(text, ",") {
			v, err := parse(part)
			if err != nil {
				return err
			}
			*into = append(*into, v)
		}
		return nil
	}
}

func named[T ~string](text string) (T, error) { return T(text), nil }
