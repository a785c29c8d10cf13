package play

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/tools/sample/warden"
	"github.com/execwarden/execwarden/tools/sample/webhook"
)

// Config says how to play.
type Config struct {
	Dir         string // where data, manifests and the fake GitHub's comments are kept
	Program     string // the execwarden program
	Listen      string // the console's address
	HooksListen string
	Terminal    bool // a person is there to decide, and to stop it
	In          io.Reader
	Out         io.Writer
}

// patience bounds the run without the time that a person takes.
const patience = 2 * time.Minute

// Run plays the sample. It returns nil when everything that it promises held.
func Run(ctx context.Context, cfg Config) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(cfg.Out, format+"\n", args...) }
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return err
	}
	say("== The world of the sample, on this machine")
	world, err := startWorld(context.WithoutCancel(ctx), cfg.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.close()) }()
	world.describe(cfg.Out)
	commentsBefore := world.github.Effects()

	say("\n== ExecWarden")
	starting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := warden.Start(starting, warden.Config{Program: cfg.Program, Data: filepath.Join(cfg.Dir, "data"), Listen: cfg.Listen, HooksListen: cfg.HooksListen, Out: cfg.Out})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()

	say("\n== Its configuration, as files")
	secret, err := writeManifests(world, cfg.Dir)
	if err != nil {
		return err
	}
	if err := w.Show(starting, cfg.Out, "apply", "-f", filepath.Join(cfg.Dir, "manifests"), "--yes"); err != nil {
		return err
	}
	if err := w.AwaitTools(starting); err != nil {
		return err
	}

	say("\n== A webhook arrives: GitHub's own example of a new issue. The events, as they happen:\n")
	tailing, endTail := context.WithCancel(ctx)
	defer endTail()
	tail := w.Command(tailing, "events", "tail")
	tail.Stdout = cfg.Out
	if err := tail.Start(); err != nil {
		return err
	}
	tailEnded := make(chan struct{})
	go func() { _ = tail.Wait(); close(tailEnded) }() // it ends because it is told to
	defer func() { endTail(); <-tailEnded }()
	time.Sleep(300 * time.Millisecond) // so that the tail shows the delivery too; nothing depends on it
	began := time.Now()
	if err := deliver(starting, w.At().Hooks, secret); err != nil {
		return err
	}
	row, err := follow(ctx, cfg, w, began)
	if err != nil {
		return err
	}
	endTail()
	<-tailEnded

	say("\n== The result")
	if err := w.Show(ctx, cfg.Out, "runs", "show", string(row.Run)); err != nil {
		return err
	}
	comments := world.github.Comments()
	if n := len(comments) - commentsBefore; row.State != "completed" || world.model.scripted && n != 1 {
		return fmt.Errorf("the run is %s and left %d comments on GitHub; it should be completed and leave one", row.State, n)
	}
	if len(comments) > commentsBefore {
		say("\nOn the fake GitHub, the issue now has the comment:\n\n  %s", strings.ReplaceAll(comments[len(comments)-1], "\n", "\n  "))
	}
	say("\n== The proof")
	if err := w.Show(ctx, cfg.Out, "ledger", "verify"); err != nil {
		return err
	}
	say("\n== The console, with a login that works once")
	if err := w.Show(ctx, cfg.Out, "login"); err != nil {
		return err
	}
	if !cfg.Terminal {
		say("\nEverything held. The data stays in %s; make clean removes it.", cfg.Dir)
		return nil
	}
	say("\nEverything held. ExecWarden stays up until Ctrl-C.")
	select {
	case <-ctx.Done():
	case <-w.Ended():
	}
	return nil
}

func deliver(ctx context.Context, hooks, secret string) error {
	resp, err := webhook.Deliver(ctx, http.DefaultClient, webhook.Delivery{
		URL: hooks + "/hooks/tnt_main/hook_github", Secret: secret, Event: "issues", ID: guid(), HookID: "1",
		Body: webhook.Payload(webhook.IssuesOpened),
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // what can be read of why
		return fmt.Errorf("the delivery is answered %s: %s", resp.Status, body)
	}
	return nil
}

// follow waits for the run's end, and has its held calls decided.
func follow(ctx context.Context, cfg Config, w *warden.Warden, began time.Time) (ask.RunRow, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(patience, func() { cancel(errors.New("the run has not ended in time")) })
	defer timer.Stop()
	asked := map[string]bool{}
	for {
		list, err := warden.Read[ask.RunPage](ctx, w, "runs", "--limit", "1")
		if err != nil {
			return ask.RunRow{}, errors.Join(err, context.Cause(ctx))
		}
		if len(list.Runs) == 1 && list.Runs[0].Created.After(began.Add(-time.Second)) && !list.Runs[0].Ended.IsZero() {
			return list.Runs[0], nil
		}
		open, err := warden.Read[ask.Approvals](ctx, w, "approvals")
		if err != nil {
			return ask.RunRow{}, errors.Join(err, context.Cause(ctx))
		}
		for _, a := range open.Approvals {
			if asked[string(a.Approval)] {
				continue
			}
			asked[string(a.Approval)] = true
			timer.Stop() // a person takes what time they need
			if err := decide(ctx, cfg, w, a); err != nil {
				return ask.RunRow{}, err
			}
			timer.Reset(patience)
		}
		select {
		case <-ctx.Done():
			return ask.RunRow{}, context.Cause(ctx)
		case <-time.After(150 * time.Millisecond):
		}
	}
}

// decide asks the person at the terminal. Where there is none, the sample decides by the command, and says so.
func decide(ctx context.Context, cfg Config, w *warden.Warden, a ask.Approval) error {
	var args struct{ Owner, Repo, Body string }
	_ = json.Unmarshal(a.Body.Args, &args) // another tool has other arguments; they are shown whole then
	fmt.Fprintf(cfg.Out, "\n-- A call waits for a person\n   agent  %s\n   tool   %s\n", a.Agent, a.Tool)
	if args.Body != "" {
		fmt.Fprintf(cfg.Out, "   repo   %s/%s\n   body   %s\n", args.Owner, args.Repo, strings.ReplaceAll(strings.TrimSpace(args.Body), "\n", "\n          "))
	} else {
		fmt.Fprintf(cfg.Out, "   args   %s\n", a.Body.Args)
	}
	if !cfg.Terminal {
		fmt.Fprintln(cfg.Out, "   There is no terminal to ask at, so the sample approves with the execwarden command:")
		return w.Show(ctx, cfg.Out, "approvals", "approve", string(a.Approval), "--yes")
	}
	verb := "deny"
	if yes, err := asksYes(ctx, cfg); err != nil {
		return err
	} else if yes {
		verb = "approve"
	}
	return w.Show(ctx, cfg.Out, "approvals", verb, string(a.Approval), "--yes")
}

func asksYes(ctx context.Context, cfg Config) (bool, error) {
	fmt.Fprint(cfg.Out, "   Approve? [y/n] ")
	answers := make(chan string, 1)
	go func() { // ends with the program when nobody answers
		line, _ := bufio.NewReader(cfg.In).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answers:
		return a == "y" || a == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func guid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
