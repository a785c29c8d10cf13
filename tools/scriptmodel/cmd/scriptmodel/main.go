// Scriptmodel serves a script as if it were a model: scriptmodel -listen 127.0.0.1:11500 script.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/execwarden/execwarden/tools/scriptmodel"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "scriptmodel:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to serve on")
	flag.Parse()
	if flag.NArg() != 1 {
		return errors.New("usage: scriptmodel [-listen address] script.yaml")
	}
	raw, err := os.ReadFile(flag.Arg(0))
	if err != nil {
		return err
	}
	script, err := scriptmodel.Load(raw)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Printf("scripted model %s on http://%s\n", script.Model, ln.Addr())
	srv := &http.Server{Handler: scriptmodel.New(script), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() }) // nothing here is worth a drain
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
