package warden

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

// Warden is execwarden up in a process of its own, and the execwarden command to talk to it.
type Warden struct {
	program string
	up      *exec.Cmd
	ended   chan struct{}
	err     error // how it ended, once ended is closed
	at      Endpoints
}

// Endpoints is where execwarden up says that it is reached.
type Endpoints struct {
	PID       int    `json:"pid"`
	API       string `json:"api"`
	Hooks     string `json:"hooks"`
	TokenFile string `json:"token_file"`
}

// Config says what to start.
type Config struct {
	Program     string // the execwarden program
	Data        string // its data directory
	Listen      string // the address of the API and the console; port 0 for any
	HooksListen string
	Flags       []string // further flags of execwarden up
	Out         io.Writer
}

// Start starts execwarden up and waits until it works, at most until ctx ends.
func Start(ctx context.Context, cfg Config) (*Warden, error) {
	w := &Warden{program: cfg.Program, ended: make(chan struct{})}
	w.up = exec.Command(cfg.Program, append([]string{"up", "--data", cfg.Data, "--listen", cfg.Listen, "--hooks-listen", cfg.HooksListen, "--ops-listen", "127.0.0.1:0"}, cfg.Flags...)...)
	w.up.Stdout, w.up.Stderr = cfg.Out, cfg.Out
	// Ctrl-C at the terminal is for whoever started it, who then stops it in order.
	w.up.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.up.Start(); err != nil {
		return nil, fmt.Errorf("execwarden up: %w", err)
	}
	go func() {
		w.err = w.up.Wait()
		close(w.ended)
	}()
	for {
		raw, err := os.ReadFile(filepath.Join(cfg.Data, "endpoints.json"))
		if err == nil && json.Unmarshal(raw, &w.at) == nil && w.at.PID == w.up.Process.Pid {
			return w, nil
		}
		select {
		case <-w.ended:
			return nil, fmt.Errorf("execwarden up ended: %w", w.err)
		case <-ctx.Done():
			return nil, errors.Join(errors.New("execwarden up is not ready in time"), w.Stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Stop ends execwarden up as an operator does, and waits for it.
func (w *Warden) Stop() error {
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

// At is where it is reached.
func (w *Warden) At() Endpoints { return w.at }

// Ended is closed when it has ended, however that came.
func (w *Warden) Ended() <-chan struct{} { return w.ended }

// Command makes an execwarden command against this warden.
func (w *Warden) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Env = append(os.Environ(), "EXECWARDEN_URL="+w.at.API, "EXECWARDEN_TOKEN_FILE="+w.at.TokenFile)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Show runs a command as a person would, with its output on out.
func (w *Warden) Show(ctx context.Context, out io.Writer, args ...string) error {
	fmt.Fprintf(out, "\n$ execwarden %s\n", strings.Join(args, " "))
	cmd := w.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("execwarden %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// Read runs a command with -o json and reads what it prints.
func Read[T any](ctx context.Context, w *Warden, args ...string) (T, error) {
	var v T
	var stdout, stderr bytes.Buffer
	cmd := w.Command(ctx, append(args, "-o", "json")...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return v, fmt.Errorf("execwarden %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &v); err != nil {
		return v, fmt.Errorf("execwarden %s -o json: %w", strings.Join(args, " "), err)
	}
	return v, nil
}

// AwaitTools waits until the connections have said what they offer.
func (w *Warden) AwaitTools(ctx context.Context) error {
	type list struct {
		Connections []struct {
			Tools []json.RawMessage `json:"tools"`
		} `json:"connections"`
	}
	for {
		all, err := Read[list](ctx, w, "connections")
		if err != nil {
			return err
		}
		silent := 0
		for _, c := range all.Connections {
			if len(c.Tools) == 0 {
				silent++
			}
		}
		if len(all.Connections) > 0 && silent == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the connections do not say what tools they have; see execwarden connections")
		case <-time.After(100 * time.Millisecond):
		}
	}
}
