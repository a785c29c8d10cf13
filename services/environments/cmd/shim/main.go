// Command shim keeps the commands of one attachment on a customer's machine. A connector starts it; it is of no use by
// hand. Build it without cgo.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/execwarden/execwarden/services/environments/internal/cage"
	"github.com/execwarden/execwarden/services/environments/internal/shim"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shim:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: shim begin CONFIG | shim serve CONFIG | shim launch RULES")
	}
	switch args[0] {
	case "begin":
		cfg, err := load(args[1])
		if err != nil {
			return err
		}
		return shim.Detach(context.Background(), cfg, "/proc/self/exe", args[1])
	case "serve":
		cfg, err := load(args[1])
		if err != nil {
			return err
		}
		// Not SIGHUP: it outlives the connector that began it, and the terminal of that.
		signal.Ignore(unix.SIGHUP)
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
		defer stop()
		return shim.Serve(ctx, cfg, "/proc/self/exe", slog.New(slog.NewTextHandler(os.Stderr, nil)))
	case "launch":
		var rules cage.Rules
		if err := json.Unmarshal([]byte(args[1]), &rules); err != nil {
			return err
		}
		return shim.Launch(rules)
	}
	return fmt.Errorf("there is no %q", args[0])
}

func load(path string) (cfg shim.Config, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return cfg, err
	}
	return cfg, json.Unmarshal(raw, &cfg)
}
