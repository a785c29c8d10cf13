// Bench-mcp measures what ExecWarden adds to a tool call over MCP, beside the same call made directly, in one run; and what
// a revocation takes with many sessions open.
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
		fmt.Fprintln(os.Stderr, "bench-mcp:", err)
	}
	os.Exit(problem.ExitCode(err))
}

func run() (err error) {
	cfg := callpath.DefaultOutside()
	output := flag.String("o", "table", "table or json")
	profile := flag.String("cpuprofile", "", "file for a CPU profile of the whole run")
	allocs := flag.String("memprofile", "", "file for a profile of what the whole run allocated")
	flag.StringVar(&cfg.Protocol, "protocol", cfg.Protocol, "version of MCP: 2025-11-25 (sessions) or 2026-07-28 (none)")
	flag.DurationVar(&cfg.Round, "round", cfg.Round, "how long one turn of one way is")
	flag.IntVar(&cfg.Rounds, "rounds", cfg.Rounds, "how many turns each way has")
	flag.IntVar(&cfg.Sessions, "sessions", cfg.Sessions, "sessions that are open while grants are revoked; 0 leaves that out")
	flag.IntVar(&cfg.Revokes, "revokes", cfg.Revokes, "how many grants are revoked")
	flag.Func("clients", "numbers of clients, with commas between (default 1,16,64)", list(&cfg.Callers, strconv.Atoi))
	flag.Func("sync", "interval, always (default both)", list(&cfg.Syncs, func(text string) (callpath.Sync, error) { return callpath.Sync(text), nil }))
	flag.Func("loads", "grants/tools, with commas between (default 1/1,1/50,1000/50,1/500)", list(&cfg.Loads, func(text string) (l callpath.Load, err error) {
		_, err = fmt.Sscanf(text, "%d/%d", &l.Grants, &l.Tools)
		return l, err
	}))
	flag.Parse()
	if flag.NArg() > 0 || *output != "table" && *output != "json" {
		return problem.New(problem.Invalid, "bench-mcp takes flags only, and -o is table or json; -help lists them")
	}
	log, err := boot.NewLogger(os.Stderr, "text", "error")
	if err != nil {
		return err
	}
	boot.RoomyHeap() // as services do
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	endTraces, err := boot.StartTraces(ctx, "bench-mcp", boot.Version()) // services pay for traces too
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
	if *allocs != "" {
		f, err := os.Create(*allocs)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pprof.Lookup("allocs").WriteTo(f, 0), f.Close()) }()
	}
	report, err := callpath.RunOutside(ctx, cfg, log)
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
