package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// logFile is what a shim says, for the machine's owner.
const logFile = "shim.log"

// Detach begins a shim that is nobody's child, and returns when it answers. self is the program whose "serve" is Serve of
// the configuration in file.
func Detach(ctx context.Context, cfg Config, self, file string) error {
	path := filepath.Join(cfg.Dir, logFile)
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(self, "serve", file)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // this process ends before that one
	client := Dial(cfg.Dir)
	defer client.Close()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := client.List(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			said, _ := os.ReadFile(path) // what it said, if anything
			return errors.Join(fmt.Errorf("%s", strings.TrimSpace(string(said))), err)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
