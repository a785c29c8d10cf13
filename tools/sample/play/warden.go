package play

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// warden is execwarden up in a process of its own, and the execwarden command to talk to it.
type warden struct {
	program string
	data    string
	up      *exec.Cmd
	ended   chan error
	err     error // how it ended, once ended is closed
	at      endpoints
}

// endpoints is where execwarden up says that it is reached.
type endpoints struct {
	PID       int    `json:"pid"`
	API       string `json:"api"`
	Hooks     string `json:"hooks"`
	TokenFile string `json:"token_file"`
}

func startWarden(ctx context.Context, program, data, listen, hooks string, out io.Writer) (*warden, error) {
	w := &warden{program: program, data: data, ended: make(chan error)}
	w.up = exec.Command(program, "up", "--data", data, "--listen", listen, "--hooks-listen", hooks, "--ops-listen", "127.0.0.1:0")
	w.up.Stdout, w.up.Stderr = out, out
	// Ctrl-C at the terminal is for the sample, which then stops it in order.
	w.up.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.up.Start(); err != nil {
		return nil, fmt.Errorf("execwarden up: %w", err)
	}
	go func() {
		w.err = w.up.Wait()
		close(w.ended)
	}()
	for {
		raw, err := os.ReadFile(filepath.Join(data, "endpoints.json"))
		if err == nil && json.Unmarshal(raw, &w.at) == nil && w.at.PID == w.up.Process.Pid {
			return w, nil
		}
		select {
		case <-w.ended:
			return nil, fmt.Errorf("execwarden up ended: %w", w.err)
		case <-ctx.Done():
			return nil, errors.Join(errors.New("execwarden up is not ready in time"), w.stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop ends execwarden up as an operator does, and waits for it.
func (w *warden) stop() error {
	select {
	case <-w.ended:
		return fmt.Errorf("execwarden up ended by itself: %w", w.err)
	default:
	}
	if err := w.up.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-w.ended:
		return w.err
	case <-time.After(time.Minute):
		return errors.Join(errors.New("execwarden up did not end within a minute and was killed"), w.up.Process.Kill())
	}
}

// command makes an execwarden command against this warden.
func (w *warden) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Env = append(os.Environ(), "EXECWARDEN_URL="+w.at.API, "EXECWARDEN_TOKEN_FILE="+w.at.TokenFile)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// show runs a command as a person would, with its output on out.
func (w *warden) show(ctx context.Context, out io.Writer, args ...string) error {
	fmt.Fprintf(out, "\n$ execwarden %s\n", strings.Join(args, " "))
	cmd := w.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("execwarden %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// read runs a command with -o json and reads what it prints.
func read[T any](ctx context.Context, w *warden, args ...string) (T, error) {
	var v T
	var stdout, stderr bytes.Buffer
	cmd := w.command(ctx, append(args, "-o", "json")...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return v, fmt.Errorf("execwarden %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &v); err != nil {
		return v, fmt.Errorf("execwarden %s -o json: %w", strings.Join(args, " "), err)
	}
	return v, nil
}
