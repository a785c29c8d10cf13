package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execwarden/execwarden/libs/problem"
)

// Main runs the program with commands beside those of this package, and gives its exit code.
func Main(extra ...*cobra.Command) int {
	// To hear of a closed pipe as a failed write, instead of dying from it: what is said on standard error at the end
	// is still said. Unlike an ignored signal, this is not handed on to programs that a command starts.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, caught := untilSignal(context.Background())

	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	root := a.root(extra...)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && caught() != 0 {
		a.note("interrupted")
		return 128 + int(caught())
	}
	return a.exitCode(cmd, err)
}

// untilSignal ends a context at the first SIGINT or SIGTERM. The second ends the program at once.
func untilSignal(ctx context.Context) (_ context.Context, caught func() syscall.Signal) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(interruption(s.(syscall.Signal)))
	}()
	return ctx, func() syscall.Signal {
		var i interruption
		if errors.As(context.Cause(ctx), &i) {
			return syscall.Signal(i)
		}
		return 0
	}
}

// interruption is the end of a context by a signal.
type interruption syscall.Signal

func (i interruption) Error() string { return "interrupted by " + syscall.Signal(i).String() }

// exitCode tells what went wrong and gives the code for it.
func (a *app) exitCode(cmd *cobra.Command, err error) int {
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE): // whoever reads has read enough
		return 0
	case !a.started: // cobra's own refusals
		a.note("%s\nSee: %s --help", err, cmd.CommandPath())
		return problem.ExitCode(problem.New(problem.Invalid, "usage"))
	}
	var status exitStatus
	if errors.As(err, &status) { // of a person's own command on a machine, which has said what it had to
		return int(status)
	}
	a.note("%s", messageOf(err))
	if hint := hints[problem.CodeOf(err)]; hint != "" {
		a.note("%s", hint)
	}
	return problem.ExitCode(err)
}

// messageOf is an error for people. A problem's message says it all; its cause is for whoever looks for the fault.
func messageOf(err error) string {
	var p *problem.Error
	if errors.As(err, &p) {
		return p.Message
	}
	return err.Error()
}

// hints say what to do about a problem of which the server cannot know how we came to it.
var hints = map[problem.Code]string{
	problem.Unauthenticated: "The token is read from --token-file, EXECWARDEN_TOKEN_FILE, EXECWARDEN_TOKEN or the owner's token file, in this order.",
	problem.Denied:          "`execwarden whoami` shows whom the token stands for and in which role.",
	problem.Busy:            "Try again in a moment.",
	problem.Internal:        "The server's log says more.",
}
