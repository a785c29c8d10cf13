// Command sample plays the sample run; see package play. Exit codes: 0 everything held, 1 it did not, 2 usage.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/term"

	"github.com/execwarden/execwarden/tools/sample/play"
)

func main() {
	cfg := play.Config{In: os.Stdin, Out: os.Stdout, Terminal: term.IsTerminal(int(os.Stdin.Fd()))}
	flag.StringVar(&cfg.Dir, "dir", ".run", "directory of everything that is kept")
	flag.StringVar(&cfg.Program, "execwarden", ".bin/execwarden", "the execwarden program")
	flag.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "address of the API and the console; port 0 for any")
	flag.StringVar(&cfg.HooksListen, "hooks-listen", "127.0.0.1:8081", "address that takes webhook deliveries; port 0 for any")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "sample: %q is not a flag\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if cfg.Dir, err = keepDir(cfg.Dir); err == nil {
		err = play.Run(ctx, cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nsample: it did not hold:", err)
		os.Exit(1)
	}
}

// keepDir is where the sample keeps its data: dir, unless we are root and dir lies in a folder that others may not
// enter. Postgres runs as another user then, so the data goes to a temporary folder and dir becomes a link to it.
func keepDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil || os.Geteuid() != 0 {
		return abs, err
	}
	if there, err := filepath.EvalSymlinks(abs); err == nil {
		return there, nil
	}
	for parent := filepath.Dir(abs); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return "", err
		}
		if info.Mode().Perm()&0o001 == 0 {
			break
		}
		if parent == filepath.Dir(parent) {
			return abs, nil
		}
	}
	elsewhere, err := os.MkdirTemp("", "execwarden-sample-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(elsewhere, 0o711); err != nil {
		return "", err
	}
	return elsewhere, os.Symlink(elsewhere, abs)
}
